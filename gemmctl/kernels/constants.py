"""Numbers that the kernels and their host share: plain integers, each stated here and only here.

cubin/build.py defines every one of them for the compiler and writes them into the manifest, and a
manifest with other numbers is refused. So a name in capitals that no kernel source defines is one
of these.
"""

# Tiles
K_TILE = 64  # elements of K in one pipeline stage: 128 bytes of a 16-bit type, the swizzle's span
BOX_ROWS = 64  # rows of A or B in a box where K lies across: 128 bytes, the swizzle's span
# Tile widths come in multiples of this: two 8-wide wgmma columns per stmatrix pair. Where K lies
# across A, boxes come in multiples of BOX_ROWS.
WIDTH_STEP = 16
WIDTHS = 16  # of them: up to 256, wgmma's largest N
# Between these, tiles of D = alpha A B may have widths in multiples of wgmma's own step, so that
# less is multiplied for nothing, while boxes are as above: narrower ones do not wait for that, and
# of wider ones it is little. Not where K lies across A.
FINE_FROM = 96
FINE_TO = 192
FINE_STEP = 8
REDUCED_ROWS = 16  # rows of D in an entry that adds up the parts of a split sum
# What comes behind alpha A B but for a bias and relu has code of its own for each width of a tile,
# so there are few.
FUSED_STEP = 64  # they are multiples of it
FUSED_NARROW = 32  # and one of these besides, for groups of few rows
# Where warpgroups share tiles, multiples of WIDTH_STEP, too, from FUSED_STEP up to this: a single
# product has a tile for each SM then. Not where K lies across A.
FUSED_FINER_TO = 128
ELEMENTS_WIDTH = 128  # of the widest tile whose C may come element by element
BOXED_ROWS = 16  # of D in a box that leaves by TMA: is added to it, or stored
RECORDS = 8  # of tiles that a CTA has room for: those at work and those that come next
NARROW_ROWS = 64  # of a tile that warpgroups share, up to which they take no turns at its end alone
# Where warpgroups share a tile, C comes to the staging buffers, in pieces of so many rows, by boxes
# of these. It is asked for behind so many slices of K, when the first operands are there, and joins
# the sums before this slice; a second piece so many slices later, and of low tiles the only one
# before another.
STAGED_ROWS = 128
STAGED_BOX = 64
STAGED_ASKED = 2
STAGED_FROM = 4
STAGED_SLICES = 3
STAGED_LOW_FROM = 6
CONSTANT_MAPS = 512  # tensor maps of 128 bytes: all 64 KB of constant memory that a cubin may have
FLAGS_PER_TILE = 4  # of a split one: for each warpgroup that multiplies, in every CTA of a cluster

# A tile's flags
TILE_WORDS = 1  # D's rows are whole 16-byte words
TILE_FUSED = 2  # more than a bias and relu comes behind alpha A B
TILE_GATED = 4  # D has half the columns of x
TILE_EIGHTS = 8  # and n / 2, too, is a multiple of eight
TILE_BACKWARD = 16  # slices along K are taken from the last to the first
TILE_RESIDUES = 32  # C comes by residues
TILE_ADDED = 64  # alpha A B is added to D where it lies
TILE_ONCE = 128  # B, or with operands exchanged A, is read for this tile alone
TILE_C_IN_SUMS = 256  # beta C is in the sums when they are done, and alpha is 1
TILE_RELU = 512  # relu comes behind alpha A B or a bias, without the code of what is fused
TILE_PLUS = 1024  # C or a bias is added behind the sums
TILE_JOINED = 2048  # a bias joins the sums, as one more product of theirs
TILE_JOINED_M = 4096  # and is along m
TILE_SHUFFLED = 8192  # rows of A come shuffled
TILE_ALONE = 16384  # of a cluster's CTAs only the first has columns of D
TILE_BIAS_SCALED = 32768  # a bias along n is added as the sums are multiplied by alpha
TILE_LOADED_BY_TWO = 65536  # two threads load its stages by turns; all tiles of a launch, or none
TILE_BOXED = 131072  # alpha A B is D, and leaves by TMA, in boxes

# What is behind a tile's alpha A B + beta C, in one number: from which bit on each stands
KIND_BIAS = 0  # two bits: along which side
KIND_BIAS_TYPE = 2  # two
KIND_ACTIVATION = 4  # three
KIND_GATE = 7  # two
KIND_C_TYPE = 9  # two

# With operands exchanged rows of A may come shuffled, within runs of those that make so many bytes
# of a column of D: each of four threads then has 16 of these (cubin/src/epilogue/shuffled.cuh).
SHUFFLED_BYTES = 64

# C whose rows TMA cannot step over: it can over those of one residue modulo RESIDUES, which lie
# whole 16-byte words apart (cubin/src/residues.cuh).
RESIDUES = 8
RESIDUE_ROW_BYTES = 144  # of a row in a stage: 128, and the word that these reach into
RESIDUE_LEAD = 3  # rows that a box has besides, so that residues do not meet in a bank

# Element types, as tables name them
TYPE_BF16 = 0
TYPE_F16 = 1
TYPE_F32 = 2

# What comes behind alpha A B + beta C, in the order of BIASES, ACTIVATIONS and GATES
BIAS_NONE = 0
BIAS_N = 1
BIAS_M = 2
ACTIVATION_NONE = 0
ACTIVATION_RELU = 1
ACTIVATION_GELU = 2
ACTIVATION_GELU_TANH = 3
ACTIVATION_SILU = 4
GATE_NONE = 0
GATE_HALVES = 1
GATE_PAIRS = 2

# Tensor maps
MAP_BYTES = 128  # of a tensor map, which has to lie on a multiple of it
MAPS = 3  # of each group: of A, B and C
MAP_THREADS = 96  # in a CTA that builds maps, one thread for each

# Operands from a seed (gemmctl's ``data`` has the formula)
FILL_THREADS = 256  # in a CTA that generates operands
MIX_FIRST = 0x85EBCA6B  # the factors of MurmurHash3's finaliser
MIX_SECOND = 0xC2B2AE35
MIX_COLUMN = 0x9E3779B1  # 2^32 over the golden ratio: spreads column numbers
MIX_CLASS = 0x5851F42D  # to be mixed with a row's key: what is special in it
MIX_SPOT = 0x14057B7E  # likewise: where
QUANTILES = 65536  # different normal numbers, equally likely: the upper half of a hash chooses

# How one operand is made. Special values come in rows of A and B, so that whole rows and columns of
# D stay free of them, and in spots of C.
RECIPE_NORMAL = 0
RECIPE_INT = 1
RECIPE_SPECIAL_ROWS = 2
RECIPE_SPECIAL_SPOTS = 3

# Of 32 rows, so many have special values, each class a kind of its own
SPECIAL_CLASSES = 8
CLASS_ZEROS = 0  # of both signs
CLASS_ONE_NAN = 1
CLASS_ONE_INFINITY = 2
CLASS_ONE_LARGEST = 3  # finite number
CLASS_LONE_SUBNORMAL = 4  # among zeros
CLASS_LONE_LARGEST = 5
CLASS_SUBNORMALS = 6
CLASS_TWO_INFINITIES = 7  # of both signs

# Of 32 elements of such a row of C, one is a zero, one NaN, infinite, the largest, subnormal
SPOT_ZERO = 0
SPOT_NAN = 1
SPOT_INFINITY = 2
SPOT_LARGEST = 3
SPOT_SUBNORMAL = 4

# Copies of operands that TMA cannot read where they lie
PACK_THREADS = 256  # in a CTA that copies
PACK_CTAS = 6  # of them on an SM at one time: 24 KB on their way, and 40 registers a thread

# The L2 flush
FLUSH_THREADS = 1024  # in a CTA that reads the L2 full
PLACES_THREADS = 32  # in a CTA that tells its SM

# Hashes of rows (cubin/src/support/hash.cu has the formula)
HASH_THREADS = 256  # in a CTA, of which every warp takes a row
HASH_PLACE = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: spreads places
HASH_FIRST = 0xFF51AFD7ED558CCD  # the factors of MurmurHash3's finaliser for 64 bits
HASH_SECOND = 0xC4CEB9FE1A85EC53
