/* Functions that a writer calls for a batch of records: how many of them fit, their lengths, and the text of
 * an index. */

#include "native.h"

enum { OVERHEAD = 16, LENGTH = 8, DIGITS = 20, COLUMNS = 3 };

/* Return the end of the records that fit, starting at `begin`, and the size of their frames. The first record always
 * fits. Stop before a record that is not `bytes` or is longer than `longest`. */
PyObject *py_fitting(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs != 4 || !PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "fitting(records, begin, most_bytes, longest)");
        return NULL;
    }
    Py_ssize_t limits[3];
    for (int n = 0; n < 3; n++) {
        limits[n] = PyLong_AsSsize_t(args[n + 1]);
        if (limits[n] == -1 && PyErr_Occurred())
            return NULL;
        if (limits[n] < 0) {
            PyErr_SetString(PyExc_ValueError, "a limit is negative");
            return NULL;
        }
    }
    Py_ssize_t begin = limits[0], most = limits[1], longest = limits[2], size = 0, end = begin;
    for (; end < PyList_Size(args[0]); end++) {
        PyObject *record = PyList_GetItem(args[0], end);
        if (!PyBytes_CheckExact(record))
            break;
        Py_ssize_t length = PyBytes_Size(record);
        if (length > longest || length > PY_SSIZE_T_MAX - OVERHEAD - size)
            break;
        if (end > begin && size + length + OVERHEAD > most)
            break;
        size += length + OVERHEAD;
    }
    return Py_BuildValue("nn", end, size);
}

PyObject *py_lengths_of(PyObject *module, PyObject *records)
{
    (void)module;
    if (!PyList_Check(records)) {
        PyErr_SetString(PyExc_TypeError, "lengths_of(records), a list");
        return NULL;
    }
    Py_ssize_t count = PyList_Size(records);
    PyObject *lengths = PyBytes_FromStringAndSize(NULL, LENGTH * count);
    if (!lengths)
        return NULL;
    uint8_t *at = (uint8_t *)PyBytes_AsString(lengths);
    for (Py_ssize_t n = 0; n < count; n++) {
        PyObject *record = PyList_GetItem(records, n);
        if (!PyBytes_Check(record)) {
            PyErr_SetString(PyExc_TypeError, "a record is bytes");
            Py_DECREF(lengths);
            return NULL;
        }
        at = put64(at, (uint64_t)PyBytes_Size(record));
    }
    return lengths;
}

static const char pairs[] = "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445464748"
                            "49505152535455565758596061626364656667686970717273747576777879808182838485868788899091929394959697"
                            "9899";

static char *put_decimal(char *at, uint64_t value)
{
    char digits[DIGITS], *first = digits + DIGITS;
    for (; value >= 100; value /= 100)
        memcpy(first -= 2, pairs + 2 * (value % 100), 2);
    if (value >= 10)
        memcpy(first -= 2, pairs + 2 * value, 2);
    else
        *--first = (char)('0' + value);
    size_t size = (size_t)(digits + DIGITS - first);
    memcpy(at, first, size);
    return at + size;
}

PyObject *py_encode_index(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs != 3 || !PyBytes_Check(args[1]) || PyBytes_Size(args[1]) % LENGTH) {
        PyErr_SetString(PyExc_TypeError, "encode_index(start, lengths, member)");
        return NULL;
    }
    long long start = PyLong_AsLongLong(args[0]);
    if (start == -1 && PyErr_Occurred())
        return NULL;
    long long member = PyLong_AsLongLong(args[2]);
    if (member == -1 && PyErr_Occurred())
        return NULL;
    const uint8_t *lengths = (const uint8_t *)PyBytes_AsString(args[1]);
    Py_ssize_t count = PyBytes_Size(args[1]) / LENGTH;
    char tail[DIGITS + 2], *tail_end = tail; /* the end of each line, after the size */
    if (member >= 0) {
        *tail_end++ = ' ';
        tail_end = put_decimal(tail_end, (uint64_t)member);
    }
    *tail_end++ = '\n';
    size_t tail_size = (size_t)(tail_end - tail);
    if (count > PY_SSIZE_T_MAX / (COLUMNS * (DIGITS + 1)))
        return PyErr_NoMemory();
    char *text = malloc((size_t)count * (2 * (DIGITS + 1) + tail_size) + 1), *at = text;
    if (!text)
        return PyErr_NoMemory();
    uint64_t offset = (uint64_t)start;
    for (Py_ssize_t n = 0; n < count; n++) {
        uint64_t size = get64(lengths + LENGTH * n) + OVERHEAD;
        at = put_decimal(at, offset);
        *at++ = ' ';
        at = put_decimal(at, size);
        memcpy(at, tail, tail_size);
        at += tail_size;
        offset += size;
    }
    PyObject *encoded = PyBytes_FromStringAndSize(text, at - text);
    free(text);
    return encoded;
}
