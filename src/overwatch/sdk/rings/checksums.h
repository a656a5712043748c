/* The sums of records, as `layout.checksum` has them: CRC-32, of many bytes that of both ends.
 *
 * It is folded 16 bytes at a time where the processor multiplies without carries (Gopal et al., "Fast CRC
 * Computation for Generic Polynomials Using PCLMULQDQ Instruction", 2009) and what is left goes by half bytes, whose
 * table is one line of a cache; elsewhere four bytes at a time go by tables.
 */
#ifndef OVERWATCH_CHECKSUMS_H
#define OVERWATCH_CHECKSUMS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define HAS_FOLDING 1
#else
#define HAS_FOLDING 0
#endif

enum { WHOLE_BYTES = 4096, END_BYTES = 2048 };

static uint32_t crc_tables[4][256];
static uint32_t crc_halves[16];
static int can_fold;

static void prepare_sums(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0xEDB88320 & (0 - (crc & 1)));
        crc_tables[0][i] = crc;
    }
    for (int table = 1; table < 4; table++)
        for (int i = 0; i < 256; i++) {
            uint32_t before = crc_tables[table - 1][i];
            crc_tables[table][i] = before >> 8 ^ crc_tables[0][before & 0xFF];
        }
    for (int i = 0; i < 16; i++) crc_halves[i] = crc_tables[0][i << 4 & 0xFF];
#if HAS_FOLDING
    __builtin_cpu_init();
    can_fold = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
}

/* Without the inversions at both ends. */
static uint32_t crc_by_table(const uint8_t *data, size_t length, uint32_t crc) {
    for (; length >= 4; length -= 4, data += 4) {
        uint32_t word;
        memcpy(&word, data, 4);
        crc ^= word;
        crc = crc_tables[3][crc & 0xFF] ^ crc_tables[2][crc >> 8 & 0xFF] ^ crc_tables[1][crc >> 16 & 0xFF] ^
              crc_tables[0][crc >> 24];
    }
    while (length--) crc = crc >> 8 ^ crc_tables[0][(crc ^ *data++) & 0xFF];
    return crc;
}

#if HAS_FOLDING
/* Of few bytes; without the inversions at both ends. */
static uint32_t crc_by_halves(const uint8_t *data, size_t length, uint32_t crc) {
    while (length--) {
        crc ^= *data++;
        crc = crc >> 4 ^ crc_halves[crc & 0xF];
        crc = crc >> 4 ^ crc_halves[crc & 0xF];
    }
    return crc;
}

__attribute__((target("pclmul,sse4.1"))) static __m128i folded(__m128i sum, __m128i by, __m128i next) {
    __m128i low = _mm_clmulepi64_si128(sum, by, 0x00), high = _mm_clmulepi64_si128(sum, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* Of a multiple of 16 bytes, at least 64; without the inversions at both ends. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t crc_by_folding(const uint8_t *data, size_t length,
                                                                         uint32_t crc) {
    const __m128i by_64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i by_16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i by_8 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i polynomial = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i low_word = _mm_setr_epi32(~0, 0, ~0, 0);
    const __m128i *from = (const __m128i *)data;
    __m128i a = _mm_xor_si128(_mm_loadu_si128(from), _mm_cvtsi32_si128((int)crc));
    __m128i b = _mm_loadu_si128(from + 1), c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);
    for (from += 4, length -= 64; length >= 64; from += 4, length -= 64) {
        a = folded(a, by_64, _mm_loadu_si128(from));
        b = folded(b, by_64, _mm_loadu_si128(from + 1));
        c = folded(c, by_64, _mm_loadu_si128(from + 2));
        d = folded(d, by_64, _mm_loadu_si128(from + 3));
    }
    a = folded(folded(folded(a, by_16, b), by_16, c), by_16, d);
    for (; length >= 16; from++, length -= 16) a = folded(a, by_16, _mm_loadu_si128(from));
    /* 128 bits to 64, then to 32 by Barrett's reduction. */
    a = _mm_xor_si128(_mm_srli_si128(a, 8), _mm_clmulepi64_si128(a, by_16, 0x10));
    a = _mm_xor_si128(_mm_srli_si128(a, 4), _mm_clmulepi64_si128(_mm_and_si128(a, low_word), by_8, 0x00));
    __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(a, low_word), polynomial, 0x10);
    quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_word), polynomial, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(a, quotient), 1);
}
#endif

/* As zlib's `crc32`, which may be continued. */
static uint32_t crc(const uint8_t *data, size_t length, uint32_t start) {
    uint32_t sum = ~start;
#if HAS_FOLDING
    if (can_fold && length >= 64) {
        size_t whole = length & ~(size_t)15;
        sum = crc_by_folding(data, whole, sum);
        return ~crc_by_halves(data + whole, length - whole, sum);
    }
#endif
    return ~crc_by_table(data, length, sum);
}

static uint32_t sum_any(const uint8_t *data, uint64_t length, uint32_t start) {
    if (length <= WHOLE_BYTES) return crc(data, length, start);
    return crc(data + length - END_BYTES, END_BYTES, crc(data, END_BYTES, start));
}

#endif
