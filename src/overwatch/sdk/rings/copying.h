/* Copies of much data that leave the caches to the trainer: nobody on this processor reads them soon. */
#ifndef OVERWATCH_COPYING_H
#define OVERWATCH_COPYING_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <emmintrin.h>

enum { LEAST_PAST = 1024 };

/* Copy past the caches; `settle` must follow before anyone may be told of it. */
static void copy_past(uint8_t *to, const uint8_t *from, size_t bytes) {
    size_t first = bytes < LEAST_PAST ? bytes : -(uintptr_t)to & 15;
    memcpy(to, from, first);
    to += first, from += first, bytes -= first;
    for (; bytes >= 64; to += 64, from += 64, bytes -= 64) {
        __m128i a = _mm_loadu_si128((const __m128i *)from), b = _mm_loadu_si128((const __m128i *)from + 1);
        __m128i c = _mm_loadu_si128((const __m128i *)from + 2), d = _mm_loadu_si128((const __m128i *)from + 3);
        _mm_stream_si128((__m128i *)to, a);
        _mm_stream_si128((__m128i *)to + 1, b);
        _mm_stream_si128((__m128i *)to + 2, c);
        _mm_stream_si128((__m128i *)to + 3, d);
    }
    memcpy(to, from, bytes);
}

static void settle(void) { _mm_sfence(); }
#else
static void copy_past(uint8_t *to, const uint8_t *from, size_t bytes) { memcpy(to, from, bytes); }

static void settle(void) {}
#endif

#endif
