// wgmma on sm_90a: D[64 x W] += A[64 x 16] B[16 x W], both operands in shared memory with the 128-byte
// swizzle, each K-major or MN-major ("across": its lines are of rows of A or columns of B, not of K); D in
// registers (PTX ISA, "Asynchronous warpgroup level matrix instructions").
#pragma once

#include <cstdint>

namespace wgmma {

// Operands are bf16 in all that the compiler sees, and only in the text of asm, where cubin/build.py puts another type
// in: so nothing else may depend on it. Their 1, where it is wanted, else 0:
__device__ __forceinline__ uint32_t one_if(bool wanted) {
    uint32_t bits;
    asm("{\n.reg .pred wanted;\nsetp.ne.b32 wanted, %1, 0;\nselp.b32 %0, 0x3F80, 0, wanted;\n}"
        : "=r"(bits)
        : "r"(static_cast<uint32_t>(wanted)));
    return bits;
}

// Lower half of a shared-memory matrix descriptor: the only one that depends on where the operand is, at
// `address`, a multiple of 1024. Bytes further on are 1/16 of them more in it.
//
// K-major, lines of 128 bytes are rows of A or columns of B, and groups of eight of them lie 1024 bytes
// apart. MN-major, lines are of one k each and hold 64 rows or columns; groups of eight k lie 1024 bytes
// apart, and the next 64 rows or columns `leading` bytes, which is not used K-major.
//
// Of 16 k K-major and not swizzled: there are eight rows of eight k at `address`, a multiple of 16. From these to
// the other eight k there are `leading` bytes, 0 where they are alike, and 128 to the next eight rows.
template <uint32_t leading = 16>
__device__ __forceinline__ uint32_t descriptor(uint32_t address) {
    return leading >> 4 << 16 | (address & 0x3FFFF) >> 4;
}

// The upper half.
constexpr uint32_t SWIZZLE_128 = 1 << 30, STRIDE = 1024 >> 4;

// The same of a matrix of 16 k that is not swizzled; 0 where its rows are alike.
constexpr uint32_t PACKED_STRIDE = 8 * 16 >> 4;

// Order earlier accesses to the accumulators and to shared memory before the next multiply.
__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int pending>
__device__ __forceinline__ void wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// Eight or four accumulators from number i on as asm operands, and their numbers as text; VALUES_n and NAMES_n
// hold the first n.
#define EIGHT(i)                                                                                            \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),             \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define VALUES_8 EIGHT(0)
#define NAMES_8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define VALUES_16 VALUES_8, EIGHT(8)
#define NAMES_16 NAMES_8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define VALUES_24 VALUES_16, EIGHT(16)
#define NAMES_24 NAMES_16 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define VALUES_32 VALUES_24, EIGHT(24)
#define NAMES_32 NAMES_24 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define VALUES_40 VALUES_32, EIGHT(32)
#define NAMES_40 NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define VALUES_48 VALUES_40, EIGHT(40)
#define NAMES_48 NAMES_40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define VALUES_52 VALUES_48, FOUR(48)
#define NAMES_52 NAMES_48 ",%48,%49,%50,%51"
#define VALUES_56 VALUES_48, EIGHT(48)
#define NAMES_56 NAMES_48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define VALUES_60 VALUES_56, FOUR(56)
#define NAMES_60 NAMES_56 ",%56,%57,%58,%59"
#define VALUES_64 VALUES_56, EIGHT(56)
#define NAMES_64 NAMES_56 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define VALUES_68 VALUES_64, FOUR(64)
#define NAMES_68 NAMES_64 ",%64,%65,%66,%67"
#define VALUES_72 VALUES_64, EIGHT(64)
#define NAMES_72 NAMES_64 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define VALUES_76 VALUES_72, FOUR(72)
#define NAMES_76 NAMES_72 ",%72,%73,%74,%75"
#define VALUES_80 VALUES_72, EIGHT(72)
#define NAMES_80 NAMES_72 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define VALUES_84 VALUES_80, FOUR(80)
#define NAMES_84 NAMES_80 ",%80,%81,%82,%83"
#define VALUES_88 VALUES_80, EIGHT(80)
#define NAMES_88 NAMES_80 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define VALUES_92 VALUES_88, FOUR(88)
#define NAMES_92 NAMES_88 ",%88,%89,%90,%91"
#define VALUES_96 VALUES_88, EIGHT(88)
#define NAMES_96 NAMES_88 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define VALUES_104 VALUES_96, EIGHT(96)
#define NAMES_104 NAMES_96 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define VALUES_112 VALUES_104, EIGHT(104)
#define NAMES_112 NAMES_104 ",%104,%105,%106,%107,%108,%109,%110,%111"
#define VALUES_120 VALUES_112, EIGHT(112)
#define NAMES_120 NAMES_112 ",%112,%113,%114,%115,%116,%117,%118,%119"
#define VALUES_128 VALUES_120, EIGHT(120)
#define NAMES_128 NAMES_120 ",%120,%121,%122,%123,%124,%125,%126,%127"

// One multiply, of the 16 columns of K that begin `i` steps on.
#define STEP(i, width, count, a, b, accumulate, high, a_step, b_step, across_a, across_b)                   \
    "add.u32 low, %" #a ", " #i " * %" #a_step ";\nmov.b64 a, {low, %" #high "};\n"                         \
    "add.u32 low, %" #b ", " #i " * %" #b_step ";\nmov.b64 b, {low, %" #high "};\n"                         \
    "wgmma.mma_async.sync.aligned.m64n" #width "k16.f32.bf16.bf16"                                          \
    " {" NAMES_##count "}, a, b, " accumulate ", 1, 1, %" #across_a ", %" #across_b ";\n"

// Four of them as one statement: with four of these the compiler takes a third longer.
#define ISSUE(width, count, a, b, keep, ...)                                                                \
    asm volatile("{\n.reg .pred keep, always;\n.reg .b32 low;\n.reg .b64 a, b;\n"                           \
                 "setp.ne.b32 keep, %" #keep ", 0;\nsetp.eq.b32 always, 0, 0;\n"                            \
                 STEP(0, width, count, a, b, "keep", __VA_ARGS__)                                           \
                 STEP(1, width, count, a, b, "always", __VA_ARGS__)                                         \
                 STEP(2, width, count, a, b, "always", __VA_ARGS__)                                         \
                 STEP(3, width, count, a, b, "always", __VA_ARGS__) "}"                                     \
                 : VALUES_##count                                                                           \
                 : "r"(a_rows), "r"(b_rows), "n"(accumulate), "n"(SWIZZLE_128 | STRIDE), "n"(a_step),       \
                   "n"(b_step), "n"(a_across), "n"(b_across))

// One with A in registers, four of two elements each, and B K-major.
#define ISSUE_HELD(width, count, a0, a1, a2, a3, b, keep, high)                                             \
    asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %" #keep ", 0;\n"                                  \
                 ".reg .b64 b;\nmov.b64 b, {%" #b ", %" #high "};\n"                                        \
                 "wgmma.mma_async.sync.aligned.m64n" #width "k16.f32.bf16.bf16"                             \
                 " {" NAMES_##count "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, b, keep, 1, 1, 0;\n}"     \
                 : VALUES_##count                                                                           \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_rows), "n"(accumulate), "r"(upper))

// Asm operands are numbered: `count` accumulators, the descriptors' lower halves, the flag, the upper half,
// how far on the next 16 of K are in each descriptor, whether A and B are MN-major.
#define MULTIPLY(width, count, ...)                                                                         \
    template <bool a_across, bool b_across>                                                                 \
    struct Multiply<width, a_across, b_across> {                                                            \
        template <bool accumulate, uint32_t a_step, uint32_t b_step>                                        \
        static __device__ __forceinline__ void issue(float (&d)[count], uint32_t a_rows,                    \
                                                     uint32_t b_rows) {                                     \
            ISSUE(width, count, __VA_ARGS__);                                                               \
        }                                                                                                   \
    };

template <int width, bool a_across, bool b_across>
struct Multiply;

MULTIPLY(16, 8, 8, 9, 10, 11, 12, 13, 14, 15)
MULTIPLY(32, 16, 16, 17, 18, 19, 20, 21, 22, 23)
MULTIPLY(48, 24, 24, 25, 26, 27, 28, 29, 30, 31)
MULTIPLY(64, 32, 32, 33, 34, 35, 36, 37, 38, 39)
MULTIPLY(80, 40, 40, 41, 42, 43, 44, 45, 46, 47)
MULTIPLY(96, 48, 48, 49, 50, 51, 52, 53, 54, 55)
MULTIPLY(104, 52, 52, 53, 54, 55, 56, 57, 58, 59)
MULTIPLY(112, 56, 56, 57, 58, 59, 60, 61, 62, 63)
MULTIPLY(120, 60, 60, 61, 62, 63, 64, 65, 66, 67)
MULTIPLY(128, 64, 64, 65, 66, 67, 68, 69, 70, 71)
MULTIPLY(136, 68, 68, 69, 70, 71, 72, 73, 74, 75)
MULTIPLY(144, 72, 72, 73, 74, 75, 76, 77, 78, 79)
MULTIPLY(152, 76, 76, 77, 78, 79, 80, 81, 82, 83)
MULTIPLY(160, 80, 80, 81, 82, 83, 84, 85, 86, 87)
MULTIPLY(168, 84, 84, 85, 86, 87, 88, 89, 90, 91)
MULTIPLY(176, 88, 88, 89, 90, 91, 92, 93, 94, 95)
MULTIPLY(184, 92, 92, 93, 94, 95, 96, 97, 98, 99)
MULTIPLY(192, 96, 96, 97, 98, 99, 100, 101, 102, 103)
MULTIPLY(208, 104, 104, 105, 106, 107, 108, 109, 110, 111)
MULTIPLY(224, 112, 112, 113, 114, 115, 116, 117, 118, 119)
MULTIPLY(240, 120, 120, 121, 122, 123, 124, 125, 126, 127)
MULTIPLY(256, 128, 128, 129, 130, 131, 132, 133, 134, 135)

// Asm operands: `count` accumulators, A's registers, B's descriptor's lower half, the flag, the upper half.
#define MULTIPLY_HELD(width, count, a0, a1, a2, a3, b, keep, high)                                          \
    template <>                                                                                             \
    struct MultiplyHeld<width> {                                                                            \
        template <bool accumulate>                                                                          \
        static __device__ __forceinline__ void issue(float (&d)[count], const uint32_t (&a)[4],             \
                                                     uint32_t b_rows,                                       \
                                                     uint32_t upper = SWIZZLE_128 | STRIDE) {               \
            ISSUE_HELD(width, count, a0, a1, a2, a3, b, keep, high);                                        \
        }                                                                                                   \
    };

template <int width>
struct MultiplyHeld;

MULTIPLY_HELD(16, 8, 8, 9, 10, 11, 12, 13, 14)
MULTIPLY_HELD(32, 16, 16, 17, 18, 19, 20, 21, 22)
MULTIPLY_HELD(48, 24, 24, 25, 26, 27, 28, 29, 30)
MULTIPLY_HELD(64, 32, 32, 33, 34, 35, 36, 37, 38)
MULTIPLY_HELD(80, 40, 40, 41, 42, 43, 44, 45, 46)
MULTIPLY_HELD(96, 48, 48, 49, 50, 51, 52, 53, 54)
MULTIPLY_HELD(104, 52, 52, 53, 54, 55, 56, 57, 58)
MULTIPLY_HELD(112, 56, 56, 57, 58, 59, 60, 61, 62)
MULTIPLY_HELD(120, 60, 60, 61, 62, 63, 64, 65, 66)
MULTIPLY_HELD(128, 64, 64, 65, 66, 67, 68, 69, 70)
MULTIPLY_HELD(136, 68, 68, 69, 70, 71, 72, 73, 74)
MULTIPLY_HELD(144, 72, 72, 73, 74, 75, 76, 77, 78)
MULTIPLY_HELD(152, 76, 76, 77, 78, 79, 80, 81, 82)
MULTIPLY_HELD(160, 80, 80, 81, 82, 83, 84, 85, 86)
MULTIPLY_HELD(168, 84, 84, 85, 86, 87, 88, 89, 90)
MULTIPLY_HELD(176, 88, 88, 89, 90, 91, 92, 93, 94)
MULTIPLY_HELD(184, 92, 92, 93, 94, 95, 96, 97, 98)
MULTIPLY_HELD(192, 96, 96, 97, 98, 99, 100, 101, 102)
MULTIPLY_HELD(208, 104, 104, 105, 106, 107, 108, 109, 110)
MULTIPLY_HELD(224, 112, 112, 113, 114, 115, 116, 117, 118)
MULTIPLY_HELD(240, 120, 120, 121, 122, 123, 124, 125, 126)
MULTIPLY_HELD(256, 128, 128, 129, 130, 131, 132, 133, 134)

#undef MULTIPLY
#undef ISSUE
#undef STEP
#undef MULTIPLY_HELD
#undef ISSUE_HELD
#undef EIGHT
#undef FOUR

}  // namespace wgmma
