/* CRC-32C (Castagnoli), computed with the processor's instruction if it has one (SSE 4.2 or ARMv8), or else with eight
 * tables.
 *
 * The instruction takes three cycles, but a new one can begin in each cycle. The CRCs of three stretches of the data
 * are therefore computed side by side. To join them, the CRC of one stretch is advanced over the length of the next.
 * This is linear, so four tables of 256 entries, one for each byte of the CRC, are enough. */

#include "native.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#define HARDWARE "sse4.2"
#if defined(__clang__) && __clang_major__ >= 14 /* from this version on, the instruction is a separate feature */
#define TARGET __attribute__((target("sse4.2,crc32")))
#else
#define TARGET __attribute__((target("sse4.2")))
#endif
#define STEP8(crc, value) ((uint32_t)_mm_crc32_u64((crc), (value)))
#define STEP1(crc, value) _mm_crc32_u8((crc), (value))
#elif defined(__aarch64__)
#include <arm_acle.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#define HARDWARE "armv8"
#if defined(__clang__)
#define TARGET __attribute__((target("crc")))
#else
#define TARGET __attribute__((target("+crc")))
#endif
#define STEP8(crc, value) __crc32cd((crc), (value))
#define STEP1(crc, value) __crc32cb((crc), (value))
#endif

#define POLYNOMIAL 0x82F63B78u /* bits reversed */

/* A function that updates the CRC register with more data, without inverting it before and after. */
typedef uint32_t (*sum_function)(uint32_t crc, const uint8_t *at, size_t size);

static uint32_t bytewise[8][256];

static uint32_t sum_by_tables(uint32_t crc, const uint8_t *at, size_t size)
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

/* The lengths of stretches: long for speed, and short so that records of a few hundred bytes are faster too. */
enum { LONG = 1344, SHORT = 128, LINE = 64 };

static uint32_t over_long[4][256], over_short[4][256];

static inline uint32_t carried(uint32_t table[4][256], uint32_t crc)
{
    return table[0][crc & 0xFF] ^ table[1][(crc >> 8) & 0xFF] ^ table[2][(crc >> 16) & 0xFF] ^ table[3][crc >> 24];
}

TARGET static inline uint32_t three(uint32_t crc, const uint8_t *at, size_t stretch, uint32_t table[4][256])
{
    uint32_t second = 0, third = 0;
    for (const uint8_t *end = at + stretch; at < end; at += LINE) {
        /* Prefetch the same lines of the next three stretches. Uncached data is then processed 1.5 times as fast. */
        for (size_t n = 3; n < 6; n++)
            __builtin_prefetch((const void *)((uintptr_t)at + n * stretch)); /* perhaps past the end */
        for (size_t n = 0; n < LINE; n += 8) {
            crc = STEP8(crc, get64(at + n));
            second = STEP8(second, get64(at + stretch + n));
            third = STEP8(third, get64(at + 2 * stretch + n));
        }
    }
    return carried(table, carried(table, crc) ^ second) ^ third;
}

TARGET static uint32_t sum_by_hardware(uint32_t crc, const uint8_t *at, size_t size)
{
    for (; size >= 3 * LONG; size -= 3 * LONG, at += 3 * LONG)
        crc = three(crc, at, LONG, over_long);
    for (; size >= 3 * SHORT; size -= 3 * SHORT, at += 3 * SHORT)
        crc = three(crc, at, SHORT, over_short);
    for (; size >= 8; size -= 8, at += 8)
        crc = STEP8(crc, get64(at));
    for (; size; size--)
        crc = STEP1(crc, *at++);
    return crc;
}

/* Make the tables that advance a CRC over `zeros` zero bytes, with an entry for each value of each of its bytes. */
static void make_carrier(uint32_t table[4][256], size_t zeros)
{
    for (int bit = 0; bit < 32; bit++) {
        uint32_t crc = 1u << bit;
        for (size_t n = 0; n < zeros; n++)
            crc = (crc >> 8) ^ bytewise[0][crc & 0xFF];
        uint32_t *row = table[bit / 8];
        int known = 1 << (bit % 8);
        for (int value = 0; value < known; value++)
            row[known + value] = row[value] ^ crc;
    }
}

static int has_hardware(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("sse4.2");
#elif defined(__APPLE__)
    return 1; /* all of Apple's 64-bit processors that run Python have it */
#elif defined(__linux__)
    return (getauxval(AT_HWCAP) >> 7) & 1; /* HWCAP_CRC32 */
#else
    return 0;
#endif
}

#endif

static sum_function chosen = sum_by_tables;

void prepare_crc32c(void)
{
    for (uint32_t value = 0; value < 256; value++) {
        uint32_t crc = value;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? POLYNOMIAL : 0);
        bytewise[0][value] = crc;
    }
    for (int place = 1; place < 8; place++)
        for (int value = 0; value < 256; value++) {
            uint32_t before = bytewise[place - 1][value];
            bytewise[place][value] = (before >> 8) ^ bytewise[0][before & 0xFF];
        }
#if defined(HARDWARE)
    if (has_hardware()) {
        make_carrier(over_long, LONG);
        make_carrier(over_short, SHORT);
        chosen = sum_by_hardware;
    }
#endif
}

uint32_t crc32c_of(uint32_t value, const void *data, size_t size)
{
    return ~chosen(~value, data, size);
}

PyObject *py_crc32c_path(PyObject *module, PyObject *nothing)
{
    (void)module, (void)nothing;
#if defined(HARDWARE)
    if (chosen == sum_by_hardware)
        return PyUnicode_FromString(HARDWARE);
#endif
    return PyUnicode_FromString("tables");
}

static PyObject *summed(sum_function sum, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 1 && nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "crc32c(data, value=0)");
        return NULL;
    }
    unsigned long value = 0;
    if (nargs == 2) {
        value = PyLong_AsUnsignedLongMask(args[1]);
        if (value == (unsigned long)-1 && PyErr_Occurred())
            return NULL;
    }
    uint32_t crc = ~(uint32_t)value;
    if (PyBytes_Check(args[0]) && PyBytes_Size(args[0]) < WORTH_LETTING_GO) /* the usual case, without a buffer */
        return PyLong_FromUnsignedLong((uint32_t)~sum(
            crc, (const uint8_t *)PyBytes_AsString(args[0]), (size_t)PyBytes_Size(args[0])));
    Py_buffer view;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE))
        return NULL;
    if (view.len < WORTH_LETTING_GO)
        crc = sum(crc, view.buf, (size_t)view.len);
    else {
        Py_BEGIN_ALLOW_THREADS
        crc = sum(crc, view.buf, (size_t)view.len);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong((uint32_t)~crc);
}

PyObject *py_crc32c(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    return summed(chosen, args, nargs);
}

PyObject *py_crc32c_by_tables(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    return summed(sum_by_tables, args, nargs);
}
