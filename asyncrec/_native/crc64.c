/* CRC-64/NVME, with which Azure checks the request bodies that it receives. It is computed with carry-less
 * multiplication if the processor supports it (PCLMULQDQ), or else with eight tables.
 *
 * Bits are reversed, as in the CRC itself, so bit n of a word stands for x ** (63 - n). For two such words, the
 * instruction returns the product of their polynomials times x, so the exponent of each constant below is one less.
 *
 * Four lanes of 16 bytes are folded onto the next 64 bytes: each lane is multiplied, modulo the polynomial, by the
 * power of x that moves it there, and added. At the end, the lanes are folded into one another, and the tables compute
 * the CRC of the last 16 bytes, which equals that of all the data. See "Fast CRC Computation for Generic Polynomials
 * Using PCLMULQDQ Instruction" (Intel, 2009). */

#include "native.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#include <wmmintrin.h>
#define HARDWARE "pclmulqdq"
#define TARGET __attribute__((target("pclmul,sse2")))
#endif

#define POLYNOMIAL 0x9A6C9329AC4BC9B5u /* bits reversed */

/* A function that updates the CRC register with more data, without inverting it before and after. */
typedef uint64_t (*sum_function)(uint64_t crc, const uint8_t *at, size_t size);

static uint64_t bytewise[8][256];

static uint64_t sum_by_tables(uint64_t crc, const uint8_t *at, size_t size)
{
    for (; size >= 8; size -= 8, at += 8) {
        uint64_t word = get64(at) ^ crc;
        crc = 0;
        for (int place = 0; place < 8; place++)
            crc ^= bytewise[7 - place][(word >> (8 * place)) & 0xFF];
    }
    for (; size; size--)
        crc = (crc >> 8) ^ bytewise[0][(crc ^ *at++) & 0xFF];
    return crc;
}

#if defined(HARDWARE)

enum { LANE = 16, LINE = 4 * LANE };

/* The constants that move the first and the last 8 bytes of a lane over a line, and over a lane. */
static uint64_t over_line[2], over_lane[2];

TARGET static inline __m128i folded(__m128i lane, __m128i over, const uint8_t *onto)
{
    __m128i first = _mm_clmulepi64_si128(lane, over, 0x00), last = _mm_clmulepi64_si128(lane, over, 0x11);
    return _mm_xor_si128(_mm_xor_si128(first, last), _mm_loadu_si128((const __m128i *)(const void *)onto));
}

TARGET static uint64_t sum_by_hardware(uint64_t crc, const uint8_t *at, size_t size)
{
    if (size < 2 * LINE)
        return sum_by_tables(crc, at, size);
    __m128i line = _mm_loadu_si128((const __m128i *)(const void *)over_line);
    __m128i next = _mm_loadu_si128((const __m128i *)(const void *)over_lane);
    __m128i lanes[4];
    for (int n = 0; n < 4; n++)
        lanes[n] = _mm_loadu_si128((const __m128i *)(const void *)(at + n * LANE));
    lanes[0] = _mm_xor_si128(lanes[0], _mm_set_epi64x(0, (long long)crc));
    for (at += LINE, size -= LINE; size >= LINE; at += LINE, size -= LINE)
        for (int n = 0; n < 4; n++)
            lanes[n] = folded(lanes[n], line, at + n * LANE);
    uint8_t left[LANE];
    for (int n = 1; n < 4; n++) {
        _mm_storeu_si128((__m128i *)(void *)left, lanes[n]);
        lanes[n] = folded(lanes[n - 1], next, left);
    }
    for (; size >= LANE; at += LANE, size -= LANE)
        lanes[3] = folded(lanes[3], next, at);
    _mm_storeu_si128((__m128i *)(void *)left, lanes[3]);
    return sum_by_tables(sum_by_tables(0, left, LANE), at, size);
}

/* Return x to the power of the exponent, modulo the polynomial. */
static uint64_t power(int exponent)
{
    uint64_t value = (uint64_t)1 << 63;
    while (exponent--)
        value = (value >> 1) ^ (value & 1 ? POLYNOMIAL : 0);
    return value;
}

#endif

static sum_function chosen = sum_by_tables;

void prepare_crc64(void)
{
    for (uint64_t value = 0; value < 256; value++) {
        uint64_t crc = value;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? POLYNOMIAL : 0);
        bytewise[0][value] = crc;
    }
    for (int place = 1; place < 8; place++)
        for (int value = 0; value < 256; value++) {
            uint64_t before = bytewise[place - 1][value];
            bytewise[place][value] = (before >> 8) ^ bytewise[0][before & 0xFF];
        }
#if defined(HARDWARE)
    if (__builtin_cpu_supports("pclmul")) {
        over_line[0] = power(8 * LINE + 63);
        over_line[1] = power(8 * LINE - 1);
        over_lane[0] = power(8 * LANE + 63);
        over_lane[1] = power(8 * LANE - 1);
        chosen = sum_by_hardware;
    }
#endif
}

static PyObject *summed(sum_function sum, PyObject *data)
{
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE))
        return NULL;
    uint64_t crc;
    if (view.len < WORTH_LETTING_GO)
        crc = sum(~(uint64_t)0, view.buf, (size_t)view.len);
    else {
        Py_BEGIN_ALLOW_THREADS
        crc = sum(~(uint64_t)0, view.buf, (size_t)view.len);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLongLong(~crc);
}

PyObject *py_crc64nvme(PyObject *module, PyObject *data)
{
    (void)module;
    return summed(chosen, data);
}

PyObject *py_crc64nvme_by_tables(PyObject *module, PyObject *data)
{
    (void)module;
    return summed(sum_by_tables, data);
}
