/* The common header: Python's limited API, little-endian numbers, and the functions that several files use.
 *
 * Each function does the same as the Python code next to its caller, but leaves errors, rare forms and everything else
 * that need not be fast to that Python code, which then processes the same bytes. No length in a file is trusted before
 * it has been compared with the end of the available bytes. */

#ifndef ASYNCREC_NATIVE_H
#define ASYNCREC_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the C of asyncrec is for little-endian machines; without it asyncrec is pure Python"
#endif

/* Below this many bytes, releasing the GIL costs more than it gains, because reacquiring it may take 5 ms. */
enum { WORTH_LETTING_GO = 64 * 1024 };
/* asyncrec processes this many bytes or more in a worker thread, and other threads, such as the event loop's, must be
 * able to run. */
enum { LARGE = 1 << 20 };

static inline uint32_t get32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, 4);
    return value;
}

static inline uint64_t get64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, 8);
    return value;
}

static inline uint8_t *put32(uint8_t *at, uint32_t value)
{
    memcpy(at, &value, 4);
    return at + 4;
}

static inline uint8_t *put64(uint8_t *at, uint64_t value)
{
    memcpy(at, &value, 8);
    return at + 8;
}

/* memcpy from NULL is undefined even if nothing is copied. */
static inline uint8_t *put_bytes(uint8_t *at, const void *from, size_t size)
{
    if (size)
        memcpy(at, from, size);
    return at + size;
}

static inline size_t varint_size(uint64_t value)
{
    size_t size = 1;
    for (; value >= 0x80; value >>= 7)
        size++;
    return size;
}

static inline uint8_t *put_varint(uint8_t *at, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        *at++ = (uint8_t)(value | 0x80);
    *at++ = (uint8_t)value;
    return at;
}

/* Read a length. Return the position after it, or NULL if there is no length, or if it exceeds the number of bytes that
 * are left. As in Python, a length has at most five bytes. */
static inline const uint8_t *length_at(const uint8_t *at, const uint8_t *end, size_t *size)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 35 && at < end; shift += 7) {
        uint8_t byte = *at++;
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *size = (size_t)value;
            return value <= (uint64_t)(end - at) ? at : NULL;
        }
    }
    return NULL;
}

/* Return the contents of a field with this tag, or NULL if there is no such field. */
static inline const uint8_t *field_at(const uint8_t *at, const uint8_t *end, uint8_t tag, size_t *size)
{
    return at < end && *at == tag ? length_at(at + 1, end, size) : NULL;
}

static inline size_t count_varints(const uint8_t *at, size_t size)
{
    size_t count = 0;
    for (size_t n = 0; n < size; n++)
        count += at[n] < 0x80;
    return count;
}

/* Unpack varints to int64 values of 8 bytes each. The last varint must be complete. Return 0 if one is longer than ten
 * bytes. */
static inline int take_varints(const uint8_t *at, size_t size, uint8_t *to)
{
    for (const uint8_t *end = at + size; at < end;) {
        uint64_t value = *at & 0x7F;
        for (int shift = 7; *at++ >= 0x80; shift += 7) { /* the last byte ends a value, so there is a next byte */
            if (shift > 63)
                return 0;
            value |= (uint64_t)(*at & 0x7F) << shift;
        }
        to = put64(to, value);
    }
    return 1;
}

/* Make the tables of crc32c.c and crc64.c, once, before any other function is called. */
void prepare_crc32c(void);
void prepare_crc64(void);
/* Return the CRC-32C of data, continued from `value`, which is the CRC of all data before it, or 0. */
uint32_t crc32c_of(uint32_t value, const void *data, size_t size);

/* The methods, documented in module.c and _c.pyi. */
PyObject *py_crc32c(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *py_crc32c_path(PyObject *module, PyObject *nothing);
PyObject *py_crc32c_by_tables(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *py_encode_frames(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *py_crc64nvme(PyObject *module, PyObject *data);
PyObject *py_crc64nvme_by_tables(PyObject *module, PyObject *data);
PyObject *py_cut_frames(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *py_measure_frames(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *py_encode_example(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *py_example_columns(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *py_parse_example(PyObject *module, PyObject *data);
PyObject *py_int64_values(PyObject *module, PyObject *payload);
PyObject *py_fitting(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *py_lengths_of(PyObject *module, PyObject *records);
PyObject *py_encode_index(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *py_join_digests(PyObject *module, PyObject *keys);
PyObject *py_key_digest(PyObject *module, PyObject *key);
PyObject *py_key_digests(PyObject *module, PyObject *keys);
PyObject *py_parse_index(PyObject *module, PyObject *text);
PyObject *py_sums_before(PyObject *module, PyObject *const *args, Py_ssize_t nargs);

#endif
