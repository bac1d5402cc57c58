"""Numbers that the kernels and their host share: plain integers, each stated here and only here.

cubin/build.py defines every one of them for the compiler and writes them into the manifest, and a
manifest with other numbers is refused. So a name in capitals that no kernel source defines is one
of these.
"""

# Tiles
K_TILE = 64  # elements of K in one pipeline stage: 128 bytes of a 16-bit type, the swizzle's span
WIDTH_STEP = 16  # tile widths come in multiples of this: two 8-wide wgmma columns per stmatrix pair
WIDTHS = 16  # of them: up to 256, wgmma's largest N
REDUCED_ROWS = 16  # rows of D in an entry that adds up the parts of a split sum
FLAGS_PER_TILE = 4  # of a split one: for each warpgroup that multiplies, in every CTA of a cluster

# Element types, as tables name them
TYPE_BF16 = 0
TYPE_F16 = 1
TYPE_F32 = 2

# Tensor maps
MAP_BYTES = 128  # of a tensor map, which has to lie on a multiple of it
MAPS = 2  # of each group: A's and B's
MAP_THREADS = 96  # in a CTA that builds maps, one thread for each

# Operands from a seed (gemmctl's ``data`` has the formula)
FILL_THREADS = 256  # in a CTA that generates operands
MIX_FIRST = 0x85EBCA6B  # the factors of MurmurHash3's finaliser
MIX_SECOND = 0xC2B2AE35
MIX_COLUMN = 0x9E3779B1  # 2^32 over the golden ratio: spreads column numbers
INTEGERS = 5  # that data of kind ``int`` consist of, 0 in their middle
NORMAL_MEAN = 510  # of the sum of four bytes, from which a number of kind ``normal`` is made
NORMAL_UNIT = 256  # of that sum in 1

# The L2 flush
FLUSH_THREADS = 1024  # in a CTA that reads the L2 full

# Hashes of rows (cubin/src/support/hash.cu has the formula)
HASH_THREADS = 256  # in a CTA, of which every warp takes a row
HASH_PLACE = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: spreads places
HASH_FIRST = 0xFF51AFD7ED558CCD  # the factors of MurmurHash3's finaliser for 64 bits
HASH_SECOND = 0xC4CEB9FE1A85EC53
