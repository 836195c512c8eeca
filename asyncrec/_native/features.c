/* Convert a serialised Example to its features, as asyncrec/example/_wire.py does, and packed int64 values to numbers.
 *
 * This file reads Examples in the usual form, which every writer uses: one Features message, each entry of which has a
 * name and one list. Numbers are packed. For any other Example, None is returned, and Python reads the Example or
 * raises an error. */

#include "native.h"

enum { NONE, BYTES, FLOAT, INT64 };

/* Return the contents of a list as bytes or, for BYTES, as a list of bytes. Return NULL if the list is not in the usual
 * form, or with an exception set. */
static PyObject *payload_of(int kind, const uint8_t *at, const uint8_t *end)
{
    size_t size = 0;
    if (kind != BYTES) {
        if (at < end && (!(at = field_at(at, end, 0x0A, &size)) || at + size != end))
            return NULL;
        return kind == FLOAT && size % 4 ? NULL : PyBytes_FromStringAndSize((const char *)at, (Py_ssize_t)size);
    }
    PyObject *values = PyList_New(0);
    for (; values && at < end; at += size) {
        at = field_at(at, end, 0x0A, &size);
        PyObject *value = at ? PyBytes_FromStringAndSize((const char *)at, (Py_ssize_t)size) : NULL;
        if (!value || PyList_Append(values, value))
            Py_CLEAR(values);
        Py_XDECREF(value);
    }
    return values;
}

/* Add an entry to the features. Return 0 if the entry is not in the usual form, or with an exception set. */
static int take_entry(PyObject *features, const uint8_t *at, const uint8_t *end)
{
    size_t size, name_size;
    const uint8_t *name = field_at(at, end, 0x0A, &name_size);
    if (!name || !(at = field_at(name + name_size, end, 0x12, &size)) || at + size != end)
        return 0;
    int kind = NONE;
    PyObject *payload = NULL;
    if (size) {
        kind = *at >> 3;
        if (kind < BYTES || kind > INT64 || !(at = field_at(at, end, (uint8_t)(kind << 3 | 2), &size)) || at + size != end)
            return 0;
        payload = payload_of(kind, at, end);
    } else
        payload = PyBytes_FromStringAndSize(NULL, 0);
    PyObject *key = payload ? PyUnicode_DecodeUTF8((const char *)name, (Py_ssize_t)name_size, NULL) : NULL;
    if (payload && !key && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
        PyErr_Clear();
    PyObject *raw = key ? Py_BuildValue("(iO)", kind, payload) : NULL;
    int taken = raw && !PyDict_SetItem(features, key, raw);
    Py_XDECREF(payload);
    Py_XDECREF(key);
    Py_XDECREF(raw);
    return taken;
}

PyObject *py_parse_example(PyObject *module, PyObject *data)
{
    (void)module;
    if (!PyBytes_Check(data)) {
        PyErr_SetString(PyExc_TypeError, "parse_example(data)");
        return NULL;
    }
    const uint8_t *at = (const uint8_t *)PyBytes_AsString(data), *end = at + PyBytes_Size(data);
    size_t size;
    PyObject *features = PyDict_New();
    int usual = features && (at == end || ((at = field_at(at, end, 0x0A, &size)) && at + size == end));
    for (; usual && at < end; at += size) {
        at = field_at(at, end, 0x0A, &size);
        usual = at && take_entry(features, at, at + size);
        if (!at)
            break;
    }
    if (usual)
        return features;
    Py_XDECREF(features);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

PyObject *py_int64_values(PyObject *module, PyObject *payload)
{
    (void)module;
    Py_buffer view;
    if (PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE))
        return NULL;
    const uint8_t *at = view.buf;
    size_t size = (size_t)view.len;
    PyObject *values = NULL;
    int whole = !size || at[size - 1] < 0x80;
    if (whole) {
        values = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(8 * count_varints(at, size)));
        whole = values && take_varints(at, size, (uint8_t *)PyByteArray_AsString(values));
    }
    PyBuffer_Release(&view);
    if (whole)
        return values;
    Py_XDECREF(values);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}
