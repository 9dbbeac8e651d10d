/* CRC32C (Castagnoli), the checksum of every byte that jlog reads back.
 *
 * One of three methods is chosen when the library is loaded. All give the same number:
 *
 *   lanes   the CPU's CRC instruction on three lanes at once, joined by its carry-less multiplication; from 4 KiB on that
 *           multiplication alone, on 256 bytes at once, where the CPU has it for vectors of 512 bits
 *   stream  the CRC instruction alone, eight bytes at a time
 *   table   slicing by 8, for any other CPU
 *
 * The instruction takes three cycles, but one can start in every cycle: a single stream leaves two thirds of the unit idle.
 * Running three lanes and joining them is the method of V. Gopal et al., "Fast CRC Computation for iSCSI Polynomial Using CRC32
 * Instruction" (Intel, 2011), and of Mark Adler's crc32c.c. Slicing by 8 is the method of M. Kounavis and F. Berry (Intel,
 * 2005). The code is our own.
 *
 * Polynomials are stored reflected: bit 31 of a 32-bit word is x^0, bit 0 is x^31. A CRC that is passed or returned is
 * finalised: inverted at both ends. A "remainder" below is a CRC that is not inverted. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#define JLOG_CRC32C_INSTRUCTION "sse4.2"
#define JLOG_CRC32C_TARGET __attribute__((target("sse4.2,pclmul")))
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#define JLOG_CRC32C_INSTRUCTION "armv8"
#if defined(__clang__)
#define JLOG_CRC32C_TARGET __attribute__((target("crc,aes")))
#else
#define JLOG_CRC32C_TARGET __attribute__((target("+crc+crypto")))
#endif
#include <arm_acle.h>
#include <arm_neon.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

enum jlog_crc32c_method {
    JLOG_CRC32C_TABLE = 0,
    JLOG_CRC32C_STREAM = 1,
    JLOG_CRC32C_LANES = 2,
};

static inline uint64_t jlog_crc32c_load(const uint8_t *at)
{
    uint64_t word;

    memcpy(&word, at, sizeof word);
    return word;
}

/* --- The table --------------------------------------------------------------------------------------------------- */

/* nibbles[n] is the remainder of these four bits. */
static const uint32_t jlog_crc32c_nibbles[16] = {
    0x00000000, 0x105EC76F, 0x20BD8EDE, 0x30E349B1, 0x417B1DBC, 0x5125DAD3, 0x61C69362, 0x7198540D,
    0x82F63B78, 0x92A8FC17, 0xA24BB5A6, 0xB21572C9, 0xC38D26C4, 0xD3D3E1AB, 0xE330A81A, 0xF36E6F75,
};

/* Returns the remainder, followed by so many times four zero bits. */
static inline uint32_t jlog_crc32c_zeros(uint32_t remainder, unsigned times)
{
    for (; times > 0; times--)
        remainder = remainder >> 4 ^ jlog_crc32c_nibbles[remainder & 0xF];
    return remainder;
}

/* slices[t][byte] is the remainder of that byte followed by t zero bytes. They are filled only in a process that needs them,
 * since as constants they would take 8 KiB of each module of the core. */
static uint32_t jlog_crc32c_slices[8][256];

__attribute__((cold)) static void jlog_crc32c_fill_slices(void)
{
    uint32_t byte, remainder;
    unsigned t;

    for (byte = 0; byte < 256; byte++)
        for (remainder = byte, t = 0; t < 8; t++)
            jlog_crc32c_slices[t][byte] = remainder = jlog_crc32c_zeros(remainder, 2);
}

/* The slices must be filled. */
__attribute__((cold, noinline, unused)) static uint32_t jlog_crc32c_table(uint32_t crc, const void *data, size_t bytes)
{
    const uint32_t(*slices)[256] = (const uint32_t(*)[256])jlog_crc32c_slices;
    const uint8_t *at = (const uint8_t *)data;
    uint32_t remainder = ~crc;

    for (; bytes >= 8; at += 8, bytes -= 8) {
        uint64_t word = jlog_crc32c_load(at) ^ remainder;

        remainder = slices[7][word & 0xFF] ^ slices[6][word >> 8 & 0xFF]
                    ^ slices[5][word >> 16 & 0xFF] ^ slices[4][word >> 24 & 0xFF]
                    ^ slices[3][word >> 32 & 0xFF] ^ slices[2][word >> 40 & 0xFF]
                    ^ slices[1][word >> 48 & 0xFF] ^ slices[0][word >> 56];
    }
    for (; bytes > 0; at += 1, bytes -= 1)
        remainder = remainder >> 8 ^ slices[0][(remainder ^ *at) & 0xFF];
    return ~remainder;
}

/* --- The instruction --------------------------------------------------------------------------------------------- */

#if defined(JLOG_CRC32C_INSTRUCTION)

/* The longest lane, in words of 8 bytes. The CPU overlaps a join with the lanes that follow it. So 64 words reach the
 * instruction's limit of 8 bytes per cycle; 32 words lose an eighth, 16 a quarter. The constants for all lengths up to three
 * lanes take 768 bytes. */
#define JLOG_CRC32C_LANE_WORDS 64

/* For fewer bytes a join costs more than it saves. Measured with the CRC carried from call to call. */
#define JLOG_CRC32C_LANES_MIN_BYTES 48

/* words_on[n - 1] is x^(64 n - 33), by which a remainder is multiplied to move it n words on. The missing factors come by
 * themselves: x^32 from the CRC instruction, and x^1 from the product of two reflected words. */
static const uint32_t jlog_crc32c_words_on[3 * JLOG_CRC32C_LANE_WORDS] = {
    0x00000001, 0x493C7D27, 0xF20C0DFE, 0xBA4FC28E, 0x3DA6D0CB, 0xDDC0152B, 0x1C291D04, 0x9E4ADDF8, 0x740EEF02, 0x39D3B296,
    0x083A6EEC, 0x0715CE53, 0xC49F4F67, 0x47DB8317, 0x2AD91C30, 0x0D3B6092, 0x6992CEA2, 0xC96CFDC0, 0x7E908048, 0x878A92A7,
    0x1B3D8F29, 0xDAECE73E, 0xF1D0F55E, 0xAB7AFF2A, 0xA87AB8A8, 0x2162D385, 0x8462D800, 0x83348832, 0x71D111A8, 0x299847D5,
    0xFFD852C6, 0xB9E02B86, 0xDCB17AA4, 0x18B33A4E, 0xF37C5AEE, 0xB6DD949B, 0x6051D5A2, 0x78D9CCB7, 0x18B0D4FF, 0xBAC2FD7B,
    0x21F3D99C, 0xA60CE07B, 0x8F158014, 0xCE7F39F4, 0xA00457F7, 0x61D82E56, 0x8D6D2C43, 0xD270F1A2, 0x00AC29CF, 0xC619809D,
    0xE9ADF796, 0x2B3CAC5D, 0x96638B34, 0x65863B64, 0xE0E9F351, 0x1B03397F, 0x9AF01F2D, 0xEBB883BD, 0x2CFF42CF, 0xB3E32C28,
    0x88F25A3A, 0x064F7F26, 0x4E36F0B0, 0xDD7E3B0C, 0xBD6F81F8, 0xF285651C, 0x91C9BD4B, 0x10746F3C, 0x885F087B, 0xC7A68855,
    0x4C144932, 0x271D9844, 0x52148F02, 0x8E766A0C, 0xA3C6F37A, 0x93A5F730, 0xD7C0557F, 0x6CB08E5C, 0x63DED06A, 0x6B749FB2,
    0x4D56973C, 0x1393E203, 0x9669C9DF, 0xCEC3662E, 0xE417F38A, 0x96C515BB, 0x4B9E0F71, 0xE6FC4E6A, 0xD104B8FC, 0x8227BB8A,
    0x5B397730, 0xB0CD4768, 0xE78EB416, 0x39C7FF35, 0x61FF0E01, 0xD7A4825C, 0x8D96551C, 0x0AB3844B, 0x0BF80DD2, 0x0167D312,
    0x8821ABED, 0xF6076544, 0x6A45D2B2, 0x26F6A60A, 0xD8D26619, 0xA741C1BF, 0xDE87806C, 0x98D8D9CB, 0x14338754, 0x49C3CC9C,
    0x5BD2011F, 0x68BCE87A, 0xDD07448E, 0x57A3D037, 0xDDE8F5B9, 0x6956FC3B, 0xA3E3E02C, 0x42D98888, 0xD73C7BEA, 0x3771E98F,
    0x80FF0093, 0xB42AE3D9, 0x8FE4C34D, 0x2178513A, 0xDF99FC11, 0xE0AC139E, 0x6C23E841, 0x170076FA, 0xFE314258, 0x444DD413,
    0x0D8373A0, 0x6F345E45, 0x19E3635E, 0x41D17B64, 0x29F268B4, 0xFF0DBA97, 0x1DC0632A, 0xA2B73DF1, 0x1614F396, 0xF872E54C,
    0x9E2993D3, 0x1E41E9FC, 0x6BEBD73C, 0x86D8E4D2, 0x63AE91E6, 0x651BD98B, 0xF8C9DA7A, 0x5BB8F1BC, 0x945A19C1, 0xA90FD27A,
    0xEE8213B7, 0xB3AF077A, 0x93781DC7, 0x4984D782, 0xCCC4A1B9, 0xCA6EF3AC, 0xA2C2D971, 0x234E0B26, 0x1CAD4452, 0xDD66CBBB,
    0x74922601, 0x4597456A, 0xC55F7EAB, 0xE9E28EB4, 0xA1962329, 0x7B3FF57A, 0x2D370749, 0xC9C8B782, 0x397D84A1, 0x3F70CC6F,
    0x79113270, 0x93E106A4, 0xBC817803, 0x62EC6C6D, 0x88EB3C07, 0xD813B325, 0x6E4CB630, 0x0DF04680, 0x71971D5C, 0x2342001E,
    0xF33B8BC6, 0x0A2A8D7E, 0x9FB3BBC0, 0x6D9A4957, 0x6EF22B23, 0xE8B6368B, 0xCE2DF768, 0xD2C3ED1A, 0xE53A4FC7, 0x995A5724,
    0xBE60A91A, 0x9EF68D35,
};

#if defined(__x86_64__)

#define jlog_crc32c_step8(remainder, word) ((uint32_t)_mm_crc32_u64((remainder), (word)))
#define jlog_crc32c_step4(remainder, word) _mm_crc32_u32((remainder), (word))
#define jlog_crc32c_step2(remainder, word) _mm_crc32_u16((remainder), (word))
#define jlog_crc32c_step1(remainder, byte) _mm_crc32_u8((remainder), (byte))

typedef __m128i jlog_crc32c_product;

JLOG_CRC32C_TARGET static inline jlog_crc32c_product jlog_crc32c_multiply(uint32_t a, uint32_t b)
{
    return _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)a), _mm_cvtsi32_si128((int)b), 0);
}

JLOG_CRC32C_TARGET static inline uint64_t jlog_crc32c_sum(jlog_crc32c_product a, jlog_crc32c_product b, jlog_crc32c_product c)
{
    return (uint64_t)_mm_cvtsi128_si64(_mm_xor_si128(_mm_xor_si128(b, c), a));
}

/* __builtin_cpu_supports would bring 4 KiB of the compiler's library into each module. */
static inline enum jlog_crc32c_method jlog_crc32c_detect(void)
{
    unsigned eax, ebx, ecx, edx;

    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_SSE4_2))
        return JLOG_CRC32C_TABLE;
    return ecx & bit_PCLMUL ? JLOG_CRC32C_LANES : JLOG_CRC32C_STREAM;
}

#else /* aarch64 */

#define jlog_crc32c_step8(remainder, word) __crc32cd((remainder), (word))
#define jlog_crc32c_step4(remainder, word) __crc32cw((remainder), (word))
#define jlog_crc32c_step2(remainder, word) __crc32ch((remainder), (word))
#define jlog_crc32c_step1(remainder, byte) __crc32cb((remainder), (byte))

typedef uint64x2_t jlog_crc32c_product;

JLOG_CRC32C_TARGET static inline jlog_crc32c_product jlog_crc32c_multiply(uint32_t a, uint32_t b)
{
    return vreinterpretq_u64_p128(vmull_p64((poly64_t)a, (poly64_t)b));
}

JLOG_CRC32C_TARGET static inline uint64_t jlog_crc32c_sum(jlog_crc32c_product a, jlog_crc32c_product b, jlog_crc32c_product c)
{
    return vgetq_lane_u64(veorq_u64(veorq_u64(b, c), a), 0);
}

static inline enum jlog_crc32c_method jlog_crc32c_detect(void)
{
    unsigned long features = getauxval(AT_HWCAP);

    if (!(features & HWCAP_CRC32))
        return JLOG_CRC32C_TABLE;
    return features & HWCAP_PMULL ? JLOG_CRC32C_LANES : JLOG_CRC32C_STREAM;
}

#endif

/* Adds fewer than 8 bytes. */
JLOG_CRC32C_TARGET static inline uint32_t jlog_crc32c_short(uint32_t remainder, const uint8_t *at, size_t bytes)
{
    if (bytes & 4) {
        uint32_t word;

        memcpy(&word, at, sizeof word);
        remainder = jlog_crc32c_step4(remainder, word);
        at += 4;
    }
    if (bytes & 2) {
        uint16_t word;

        memcpy(&word, at, sizeof word);
        remainder = jlog_crc32c_step2(remainder, word);
        at += 2;
    }
    if (bytes & 1)
        remainder = jlog_crc32c_step1(remainder, *at);
    return remainder;
}

/* Adds the 1 to 7 bytes before `end` in one step without branches. The 8 bytes before `end` must be readable. Zeros before the
 * first byte change nothing if the step begins from zero. So the bytes, and the part of the remainder that meets them, are
 * moved to the end of a word of zeros. */
JLOG_CRC32C_TARGET static inline uint32_t jlog_crc32c_tail(uint32_t remainder, const uint8_t *end, size_t bytes)
{
    unsigned bits = 8 * (unsigned)bytes, zeros = 64 - bits;
    uint64_t word = jlog_crc32c_load(end - 8) >> zeros << zeros;

    return jlog_crc32c_step8(0, word ^ (uint64_t)remainder << zeros)
           ^ (uint32_t)((uint64_t)remainder >> bits);
}

JLOG_CRC32C_TARGET static inline uint32_t jlog_crc32c_one(uint32_t remainder, const uint8_t *at, size_t bytes)
{
    const uint8_t *end = at + bytes;

    if (bytes < 8)
        return jlog_crc32c_short(remainder, at, bytes);
    for (; end - at >= 8; at += 8)
        remainder = jlog_crc32c_step8(remainder, jlog_crc32c_load(at));
    return bytes % 8 ? jlog_crc32c_tail(remainder, end, bytes % 8) : remainder;
}

JLOG_CRC32C_TARGET static uint32_t jlog_crc32c_stream(uint32_t crc, const uint8_t *at, size_t bytes)
{
    return ~jlog_crc32c_one(~crc, at, bytes);
}

/* Returns the CRC after one more word, such as the head of a short record. The lanes would take forty instructions for it. */
JLOG_CRC32C_TARGET static uint32_t jlog_crc32c_word(uint32_t crc, const uint8_t *at)
{
    return ~jlog_crc32c_step8(~crc, jlog_crc32c_load(at));
}

/* Adds 3 to 3 * JLOG_CRC32C_LANE_WORDS words as three adjoining lanes; the last lane also has the words that do not divide by
 * three. All lanes start from zero, and the remainder so far is multiplied in at the end: only there does a call wait for the
 * call before it. */
JLOG_CRC32C_TARGET static inline uint32_t jlog_crc32c_join(uint32_t remainder, const uint8_t *at, size_t words)
{
    size_t lane_words = words / 3;
    const uint8_t *b = at + 8 * lane_words, *c = b + 8 * lane_words;
    const uint8_t *end_a = b, *last = at + 8 * (words - 1);
    uint32_t lane_a = 0, lane_b = 0, lane_c = 0;
    uint64_t sum;

    for (at += 8, b += 8; at < end_a; at += 8, b += 8, c += 8) {
        lane_a = jlog_crc32c_step8(lane_a, jlog_crc32c_load(at - 8));
        lane_b = jlog_crc32c_step8(lane_b, jlog_crc32c_load(b - 8));
        lane_c = jlog_crc32c_step8(lane_c, jlog_crc32c_load(c));
    }
    lane_a = jlog_crc32c_step8(lane_a, jlog_crc32c_load(at - 8));
    lane_b = jlog_crc32c_step8(lane_b, jlog_crc32c_load(b - 8));
    for (; c < last; c += 8)
        lane_c = jlog_crc32c_step8(lane_c, jlog_crc32c_load(c));
    sum = jlog_crc32c_sum(
        jlog_crc32c_multiply(remainder, jlog_crc32c_words_on[words - 1]),
        jlog_crc32c_multiply(lane_a, jlog_crc32c_words_on[words - lane_words - 1]),
        jlog_crc32c_multiply(lane_b, jlog_crc32c_words_on[words - 2 * lane_words - 1]));
    /* The step for the last word also reduces the sum. */
    return jlog_crc32c_step8(lane_c, jlog_crc32c_load(last) ^ sum);
}

#if defined(__x86_64__)

#define JLOG_CRC32C_WIDE_TARGET __attribute__((target("avx512f,vpclmulqdq,sse4.2,pclmul")))
#define JLOG_CRC32C_WIDE_BYTES 256u

/* Multiplies each quarter of `sum` by what moves it so many words on, and adds the bytes that stand there. */
JLOG_CRC32C_WIDE_TARGET static inline __m512i jlog_crc32c_move(__m512i sum, unsigned words, __m512i there)
{
    const __m512i factors = _mm512_broadcast_i32x4(
        _mm_set_epi64x(jlog_crc32c_words_on[words - 1], jlog_crc32c_words_on[words]));

    /* 0x96 is the exclusive or of three. */
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(sum, factors, 0x00),
                                     _mm512_clmulepi64_epi128(sum, factors, 0x11), there, 0x96);
}

/* Moves one quarter two words on, as jlog_crc32c_move does, and adds the next quarter. */
JLOG_CRC32C_WIDE_TARGET static inline __m128i jlog_crc32c_move_quarter(__m128i sum, __m128i there)
{
    const __m128i factors = _mm_set_epi64x(jlog_crc32c_words_on[1], jlog_crc32c_words_on[2]);

    return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(sum, factors, 0x00), _mm_clmulepi64_si128(sum, factors, 0x11)),
                         there);
}

/* Adds bytes, at least 256 of them and a multiple of it. It is the method of V. Gopal et al., "Fast CRC Computation for Generic
 * Polynomials Using PCLMULQDQ Instruction" (Intel, 2009). */
JLOG_CRC32C_WIDE_TARGET static uint32_t jlog_crc32c_wide(uint32_t remainder, const uint8_t *at, size_t bytes)
{
    const uint8_t *const end = at + bytes;
    __m512i a = _mm512_xor_si512(_mm512_loadu_si512(at), _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)remainder)));
    __m512i b = _mm512_loadu_si512(at + 64), c = _mm512_loadu_si512(at + 128), d = _mm512_loadu_si512(at + 192);
    __m128i sum;

    for (at += JLOG_CRC32C_WIDE_BYTES; at < end; at += JLOG_CRC32C_WIDE_BYTES) {
        a = jlog_crc32c_move(a, 32, _mm512_loadu_si512(at));
        b = jlog_crc32c_move(b, 32, _mm512_loadu_si512(at + 64));
        c = jlog_crc32c_move(c, 32, _mm512_loadu_si512(at + 128));
        d = jlog_crc32c_move(d, 32, _mm512_loadu_si512(at + 192));
    }
    d = jlog_crc32c_move(jlog_crc32c_move(jlog_crc32c_move(a, 8, b), 8, c), 8, d);
    sum = _mm512_castsi512_si128(d);
    sum = jlog_crc32c_move_quarter(sum, _mm512_extracti32x4_epi32(d, 1));
    sum = jlog_crc32c_move_quarter(sum, _mm512_extracti32x4_epi32(d, 2));
    sum = jlog_crc32c_move_quarter(sum, _mm512_extracti32x4_epi32(d, 3));
    remainder = jlog_crc32c_step8(0, (uint64_t)_mm_cvtsi128_si64(sum));
    return jlog_crc32c_step8(remainder, (uint64_t)_mm_extract_epi64(sum, 1));
}

/* Returns whether the CPU has these instructions, and the kernel keeps the registers that they use. */
static inline int jlog_crc32c_detect_wide(void)
{
    const unsigned registers = 0xE6;                     /* of SSE and AVX, and all of AVX-512's */
    unsigned eax, ebx, ecx, edx, kept;

    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_OSXSAVE))
        return 0;
    __asm__("xgetbv" : "=a"(kept), "=d"(edx) : "c"(0));
    return (kept & registers) == registers && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && ebx & bit_AVX512F &&
           ecx & bit_VPCLMULQDQ;
}

#else

#define JLOG_CRC32C_WIDE_BYTES 256u
static inline int jlog_crc32c_detect_wide(void) { return 0; }
static inline uint32_t jlog_crc32c_wide(uint32_t remainder, const uint8_t *at, size_t bytes) { return remainder; }

#endif

/* For fewer bytes the lanes are as fast. */
#define JLOG_CRC32C_WIDE_MIN_BYTES 4096u

static int jlog_crc32c_has_wide;

JLOG_CRC32C_TARGET static uint32_t jlog_crc32c_lanes(uint32_t crc, const uint8_t *at, size_t bytes)
{
    const size_t join_words = 3 * JLOG_CRC32C_LANE_WORDS;
    uint32_t remainder = ~crc;

    if (bytes >= 8 * join_words) {
        if (bytes >= JLOG_CRC32C_WIDE_MIN_BYTES && jlog_crc32c_has_wide) {
            const size_t whole = bytes - bytes % JLOG_CRC32C_WIDE_BYTES;

            remainder = jlog_crc32c_wide(remainder, at, whole);
            at += whole;
            bytes -= whole;
        }
        for (; bytes >= 8 * join_words; at += 8 * join_words, bytes -= 8 * join_words)
            remainder = jlog_crc32c_join(remainder, at, join_words);
    }
    if (bytes < JLOG_CRC32C_LANES_MIN_BYTES)
        return ~jlog_crc32c_one(remainder, at, bytes);
    remainder = jlog_crc32c_join(remainder, at, bytes / 8);
    return ~(bytes % 8 ? jlog_crc32c_tail(remainder, at + bytes, bytes % 8) : remainder);
}

#else

static inline enum jlog_crc32c_method jlog_crc32c_detect(void)
{
    return JLOG_CRC32C_TABLE;
}

#endif

/* --- The choice -------------------------------------------------------------------------------------------------- */

static enum jlog_crc32c_method jlog_crc32c_chosen;

/* A constructor runs before any thread can call into the library. */
__attribute__((constructor, cold)) static void jlog_crc32c_choose(void)
{
    jlog_crc32c_chosen = jlog_crc32c_detect();
#if defined(JLOG_CRC32C_INSTRUCTION)
    jlog_crc32c_has_wide = jlog_crc32c_detect_wide();
#endif
    if (jlog_crc32c_chosen == JLOG_CRC32C_TABLE)
        jlog_crc32c_fill_slices();
}

static inline const char *jlog_crc32c_implementation(void)
{
#if defined(JLOG_CRC32C_INSTRUCTION)
    if (jlog_crc32c_chosen != JLOG_CRC32C_TABLE)
        return JLOG_CRC32C_INSTRUCTION;
#endif
    return "table";
}

/* Returns the CRC of the bytes whose CRC is `crc`, followed by `data`. The CRC of no bytes is 0. */
static inline uint32_t jlog_crc32c(uint32_t crc, const void *data, size_t bytes)
{
#if defined(JLOG_CRC32C_INSTRUCTION)
    if (__builtin_constant_p(bytes) && bytes == 8 && __builtin_expect(jlog_crc32c_chosen != JLOG_CRC32C_TABLE, 1))
        return jlog_crc32c_word(crc, (const uint8_t *)data);
    if (__builtin_expect(jlog_crc32c_chosen == JLOG_CRC32C_LANES, 1))
        return jlog_crc32c_lanes(crc, (const uint8_t *)data, bytes);
    if (jlog_crc32c_chosen == JLOG_CRC32C_STREAM)
        return jlog_crc32c_stream(crc, (const uint8_t *)data, bytes);
#endif
    return jlog_crc32c_table(crc, data, bytes);
}

/* --- Concatenation ----------------------------------------------------------------------------------------------- */

/* squares[k] is x^(2^k). The next square would be x again, because x^(2^31 - 1) is 1 modulo this polynomial. */
static const uint32_t jlog_crc32c_squares[31] = {
    0x40000000, 0x20000000, 0x08000000, 0x00800000, 0x00008000, 0x82F63B78, 0x6EA2D55C, 0x18B8EA18, 0x510AC59A, 0xB82BE955,
    0xB8FDB1E7, 0x88E56F72, 0x74C360A4, 0xE4172B16, 0x0D65762A, 0x35D73A62, 0x28461564, 0xBF455269, 0xE2EA32DC, 0xFE7740E6,
    0xF946610B, 0x3C204F8F, 0x538586E3, 0x59726915, 0x734D5309, 0xBC1AC763, 0x7D0722CC, 0xD289CABE, 0xE94CA9BC, 0x05B74F3F,
    0xA51E1F42,
};

#define JLOG_CRC32C_PERIOD_BITS UINT64_C(0x7FFFFFFF)

/* Returns the product of two polynomials, modulo that of CRC32C. */
static inline uint32_t jlog_crc32c_times(uint32_t a, uint32_t b)
{
    uint64_t product = 0;
    unsigned bit;

    /* The 63 bits of the product come first, and then one reduction: reducing at each bit would be a chain of 32 dependent
     * steps. Masks are used because a branch on a bit of a CRC is mispredicted half the time. */
    for (bit = 0; bit < 32; bit++)
        product ^= (uint64_t)a << bit & -(uint64_t)(b >> bit & 1);
    product <<= 1;
    return (uint32_t)(product >> 32) ^ jlog_crc32c_zeros((uint32_t)product, 8);
}

/* Returns the part that `crc` contributes if so many bytes follow:
 * crc(A followed by B) == jlog_crc32c_shift(crc(A), bytes of B) ^ crc(B). */
static inline uint32_t jlog_crc32c_shift(uint32_t crc, uint64_t bytes)
{
    uint64_t exponent = bytes % JLOG_CRC32C_PERIOD_BITS * 8 % JLOG_CRC32C_PERIOD_BITS;

    for (; exponent != 0; exponent &= exponent - 1)
        crc = jlog_crc32c_times(crc, jlog_crc32c_squares[__builtin_ctzll(exponent)]);
    return crc;
}
