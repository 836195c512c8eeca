/* Convert a mapping of names and values to a serialised Example, as asyncrec/example/_codec.py and _values.py do in
 * Python.
 *
 * This file converts Python's own numbers, text and bytes, lists and tuples of one of these types, and contiguous
 * arrays of ordinary numbers. It asks Python to convert any other value. If Python rejects the value, or if a number or
 * a name is rejected here, None is returned, and Python converts the entire mapping again and raises the error.
 *
 * Python code that runs during the conversion (to convert a value, or in a finaliser) cannot free the memory that is
 * being read, because this code keeps a reference to every value, and reads a list only once, item by item, into its
 * own memory. This is also true while the GIL is released, to copy many numbers of an array or many bytes. */

#include "native.h"

#include <float.h>
#include <math.h>

enum { NONE, BYTES, FLOAT, INT64, REFUSED = -1, FAILED = -2, UNKNOWN = -3 };
enum { FEW = 32 };

struct feature {
    PyObject *name, *value, *holder; /* the holder owns the converted value */
    const uint8_t *key;
    size_t key_size;
    int kind, single; /* single: one value of bytes, preceded by its length like packed numbers */
    const uint8_t *payload; /* NULL if it is in the scratch memory, from `at` on */
    size_t at, size;
    Py_buffer view; /* of an array; otherwise obj is NULL */
};

struct scratch {
    uint8_t *bytes;
    size_t used, room;
};

/* Return space for `size` bytes, or NULL with an exception. The caller must add the bytes written to `used`. */
static uint8_t *space(struct scratch *scratch, size_t size)
{
    if (!scratch->bytes || size > scratch->room - scratch->used) {
        if (size > PY_SSIZE_T_MAX / 2 - scratch->used) {
            PyErr_NoMemory();
            return NULL;
        }
        size_t room = 2 * (scratch->used + size) + 256;
        uint8_t *bytes = realloc(scratch->bytes, room);
        if (!bytes) {
            PyErr_NoMemory();
            return NULL;
        }
        scratch->bytes = bytes;
        scratch->room = room;
    }
    return scratch->bytes + scratch->used;
}

static inline int fits_float32(double value)
{
    return !(fabs(value) > FLT_MAX) || isinf(value);
}

static inline uint8_t *put_float32(uint8_t *at, double value)
{
    float single = (float)value;
    memcpy(at, &single, 4);
    return at + 4;
}

/* Append one value of a built-in type to the scratch memory, encoded as in a list. Return its kind. */
static int put_value(struct scratch *scratch, PyObject *value, PyTypeObject *type)
{
    uint8_t *at;
    if (type == &PyFloat_Type) {
        double number = PyFloat_AsDouble(value);
        if (!fits_float32(number))
            return REFUSED;
        if (!(at = space(scratch, 4)))
            return FAILED;
        put_float32(at, number);
        scratch->used += 4;
        return FLOAT;
    }
    if (type == &PyLong_Type || type == &PyBool_Type) {
        int overflow;
        long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (overflow)
            return REFUSED;
        if (!(at = space(scratch, 10)))
            return FAILED;
        scratch->used += (size_t)(put_varint(at, (uint64_t)number) - at);
        return INT64;
    }
    if (type != &PyBytes_Type && type != &PyUnicode_Type)
        return UNKNOWN;
    /* Do not use the UTF-8 that a str can cache, because the caller's str would grow. */
    PyObject *bytes = type == &PyBytes_Type ? Py_NewRef(value) : PyUnicode_AsUTF8String(value);
    if (!bytes) {
        PyErr_Clear();
        return REFUSED;
    }
    size_t size = (size_t)PyBytes_Size(bytes);
    if ((at = space(scratch, size + 11))) {
        uint8_t *end = put_varint(at + 1, size);
        const char *from = PyBytes_AsString(bytes);
        *at = 0x0A;
        if (size < LARGE)
            end = put_bytes(end, from, size);
        else {
            Py_BEGIN_ALLOW_THREADS
            end = put_bytes(end, from, size);
            Py_END_ALLOW_THREADS
        }
        scratch->used += (size_t)(end - at);
    }
    Py_DECREF(bytes);
    return at ? BYTES : FAILED;
}

/* Append the floats at the beginning of a list or tuple, and return their number. The loop is short because lists of
 * floats are long. */
static Py_ssize_t put_floats(struct scratch *scratch, PyObject *list, int is_list)
{
    Py_ssize_t count = is_list ? PyList_Size(list) : PyTuple_Size(list), n = 0;
    uint8_t *at = space(scratch, 4 * (size_t)count);
    for (; at && n < count; n++) {
        PyObject *value = is_list ? PyList_GetItem(list, n) : PyTuple_GetItem(list, n);
        if (Py_TYPE(value) != &PyFloat_Type)
            break;
        double number = PyFloat_AsDouble(value);
        if (!fits_float32(number))
            break;
        at = put_float32(at, number);
    }
    scratch->used += 4 * (size_t)n;
    return at ? n : -1;
}

/* Append a list or tuple of values of one type. Return their kind, or UNKNOWN if the types differ. */
static int put_list(struct scratch *scratch, PyObject *list)
{
    int is_list = PyList_CheckExact(list), kind = NONE;
    PyTypeObject *type = NULL;
    for (Py_ssize_t n = 0; n < (is_list ? PyList_Size(list) : PyTuple_Size(list)); n++) {
        PyObject *value = is_list ? PyList_GetItem(list, n) : PyTuple_GetItem(list, n);
        if (!type) {
            type = Py_TYPE(value);
            Py_ssize_t floats = type == &PyFloat_Type ? put_floats(scratch, list, is_list) : 0;
            if (floats < 0)
                return FAILED;
            if (floats) {
                n = floats - 1;
                kind = FLOAT;
                continue;
            }
        } else if (Py_TYPE(value) != type)
            return UNKNOWN;
        if ((kind = put_value(scratch, value, type)) < 0)
            return kind;
    }
    return kind;
}

#define PUT_INTEGERS(type, refused)                                                                                        \
    for (size_t n = 0; n < count; n++) {                                                                                   \
        type value;                                                                                                        \
        memcpy(&value, (const uint8_t *)from + n * sizeof value, sizeof value);                                            \
        if (refused)                                                                                                       \
            return NULL;                                                                                                   \
        at = put_varint(at, (uint64_t)(int64_t)value);                                                                     \
    }                                                                                                                      \
    break

/* Write the integers of an array as varints. Return their end, or NULL if one is rejected. This does not use Python.
 * The letter stands for the C type, whose width on this machine is one, two, four or eight bytes. */
static uint8_t *write_integers(uint8_t *at, char letter, size_t width, const void *from, size_t count)
{
    switch (letter == '?' ? 0 : (int)width * (letter >= 'a' ? -1 : 1)) {
    case 0:
        for (size_t n = 0; n < count; n++)
            *at++ = ((const uint8_t *)from)[n] != 0;
        break;
    case -1:
        PUT_INTEGERS(int8_t, 0);
    case -2:
        PUT_INTEGERS(int16_t, 0);
    case -4:
        PUT_INTEGERS(int32_t, 0);
    case -8:
        PUT_INTEGERS(int64_t, 0);
    case 1:
        PUT_INTEGERS(uint8_t, 0);
    case 2:
        PUT_INTEGERS(uint16_t, 0);
    case 4:
        PUT_INTEGERS(uint32_t, 0);
    default:
        PUT_INTEGERS(uint64_t, value > INT64_MAX);
    }
    return at;
}

static int put_integers(struct scratch *scratch, char letter, size_t width, const void *from, size_t count)
{
    if ((width != 1 && width != 2 && width != 4 && width != 8) || count > PY_SSIZE_T_MAX / 10)
        return UNKNOWN;
    uint8_t *begin = space(scratch, 10 * count), *end;
    if (!begin)
        return FAILED;
    if (10 * count < LARGE)
        end = write_integers(begin, letter, width, from, count);
    else {
        Py_BEGIN_ALLOW_THREADS
        end = write_integers(begin, letter, width, from, count);
        Py_END_ALLOW_THREADS
    }
    if (!end)
        return REFUSED;
    scratch->used += (size_t)(end - begin);
    return INT64;
}

/* Write float64 values as float32. Return their end, or NULL if one is rejected. This does not use Python. */
static uint8_t *write_float64s(uint8_t *at, const uint8_t *from, size_t count)
{
    for (size_t n = 0; n < count; n++) {
        double value;
        memcpy(&value, from + 8 * n, 8);
        if (!fits_float32(value))
            return NULL;
        at = put_float32(at, value);
    }
    return at;
}

static int put_float64s(struct scratch *scratch, const uint8_t *from, size_t count)
{
    uint8_t *begin = space(scratch, 4 * count), *end;
    if (!begin)
        return FAILED;
    if (8 * count < LARGE)
        end = write_float64s(begin, from, count);
    else {
        Py_BEGIN_ALLOW_THREADS
        end = write_float64s(begin, from, count);
        Py_END_ALLOW_THREADS
    }
    if (!end)
        return REFUSED;
    scratch->used += 4 * count;
    return FLOAT;
}

static int use_array(struct feature *feature, struct scratch *scratch, int narrow)
{
    Py_buffer *view = &feature->view;
    if (PyObject_GetBuffer(feature->value, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)) {
        PyErr_Clear();
        view->obj = NULL;
        return UNKNOWN;
    }
    const char *letter = view->format;
    if (!letter || view->itemsize <= 0)
        return UNKNOWN;
    letter += *letter == '<';
    if (!letter[0] || letter[1])
        return UNKNOWN;
    size_t width = (size_t)view->itemsize, count = (size_t)(view->len / view->itemsize);
    if (*letter == 'f' && width == 4) {
        feature->payload = view->buf;
        feature->size = (size_t)view->len;
        return FLOAT;
    }
    if (*letter == 'd' && width == 8)
        return narrow ? put_float64s(scratch, view->buf, count) : UNKNOWN;
    if (strchr("?bBhHiIlLqQ", *letter))
        return put_integers(scratch, *letter, width, view->buf, count);
    return UNKNOWN;
}

static int use_bytes(struct feature *feature, PyObject *bytes)
{
    feature->payload = (const uint8_t *)PyBytes_AsString(bytes);
    feature->size = (size_t)PyBytes_Size(bytes);
    return BYTES;
}

/* Ask Python to convert a value. Return its kind, and set its payload from bytes or a list of bytes. */
static int ask(struct feature *feature, struct scratch *scratch, PyObject *raw_of, PyObject *narrow)
{
    PyObject *raw = PyObject_CallFunctionObjArgs(raw_of, feature->value, narrow, NULL);
    if (!raw) {
        if (!PyErr_ExceptionMatches(PyExc_Exception)) /* such as KeyboardInterrupt */
            return FAILED;
        PyErr_Clear();
        return REFUSED;
    }
    feature->holder = raw;
    PyObject *payload = PyTuple_Check(raw) && PyTuple_Size(raw) == 2 ? PyTuple_GetItem(raw, 1) : NULL;
    if (!payload)
        return REFUSED;
    long kind = PyLong_AsLong(PyTuple_GetItem(raw, 0));
    if (kind == -1 && PyErr_Occurred())
        return FAILED;
    if (kind == NONE)
        return NONE;
    if (kind != BYTES)
        return PyBytes_Check(payload) && (kind == FLOAT || kind == INT64) ? (use_bytes(feature, payload), (int)kind) : REFUSED;
    if (!PyList_CheckExact(payload))
        return REFUSED;
    if (PyList_Size(payload) == 1 && PyBytes_Check(PyList_GetItem(payload, 0))) {
        feature->single = 1;
        return use_bytes(feature, PyList_GetItem(payload, 0));
    }
    for (Py_ssize_t n = 0; n < PyList_Size(payload); n++) {
        PyObject *value = PyList_GetItem(payload, n);
        if (!PyBytes_Check(value) || put_value(scratch, value, &PyBytes_Type) != BYTES)
            return FAILED;
    }
    return BYTES;
}

/* Return the kind of a feature, and set its payload. Return REFUSED, FAILED, or UNKNOWN if Python must be asked. */
static int use_value(struct feature *feature, struct scratch *scratch, PyTypeObject *array, int narrow)
{
    PyObject *value = feature->value;
    PyTypeObject *type = Py_TYPE(value);
    if (type == array)
        return use_array(feature, scratch, narrow);
    if (type == &PyBytes_Type) {
        feature->single = 1;
        return use_bytes(feature, value);
    }
    if (type == &PyUnicode_Type) {
        feature->single = 1;
        feature->holder = PyUnicode_AsUTF8String(value);
        if (!feature->holder) {
            PyErr_Clear();
            return REFUSED;
        }
        return use_bytes(feature, feature->holder);
    }
    if (type == &PyList_Type || type == &PyTuple_Type)
        return put_list(scratch, value);
    return put_value(scratch, value, type);
}

static int in_order(const void *one, const void *other)
{
    const struct feature *a = one, *b = other;
    size_t size = a->key_size < b->key_size ? a->key_size : b->key_size;
    int found = size ? memcmp(a->key, b->key, size) : 0;
    return found ? found : (a->key_size > b->key_size) - (a->key_size < b->key_size);
}

/* Sort the features by name. A schema passes them in sorted order, which this finds out in a single pass. */
static void put_in_order(struct feature *features, size_t count)
{
    for (size_t n = 1; n < count; n++)
        if (in_order(&features[n - 1], &features[n]) > 0) {
            qsort(features, count, sizeof *features, in_order);
            return;
        }
}

/* The sizes of a feature's list, of the feature, and of its entry. */
struct sizes {
    size_t list, feature, entry;
};

static struct sizes sizes_of(const struct feature *feature)
{
    struct sizes sizes = {feature->size, 0, 0};
    if (feature->kind == NONE)
        sizes.list = 0;
    else {
        if (feature->single || (feature->kind != BYTES && feature->size))
            sizes.list += 1 + varint_size(feature->size);
        sizes.feature = 1 + varint_size(sizes.list) + sizes.list;
    }
    sizes.entry = 1 + varint_size(feature->key_size) + feature->key_size + 1 + varint_size(sizes.feature) + sizes.feature;
    return sizes;
}

static uint8_t *put_tag(uint8_t *at, int tag, size_t size)
{
    *at++ = (uint8_t)tag;
    return put_varint(at, size);
}

static void put_features(
    uint8_t *at, const struct feature *features, size_t count, size_t size, const struct scratch *scratch)
{
    at = put_tag(at, 0x0A, size);
    for (size_t n = 0; n < count; n++) {
        const struct feature *feature = &features[n];
        struct sizes sizes = sizes_of(feature);
        at = put_tag(at, 0x0A, sizes.entry);
        at = put_bytes(put_tag(at, 0x0A, feature->key_size), feature->key, feature->key_size);
        at = put_tag(at, 0x12, sizes.feature);
        if (feature->kind == NONE)
            continue;
        at = put_tag(at, feature->kind << 3 | 2, sizes.list);
        if (sizes.list > feature->size)
            at = put_tag(at, 0x0A, feature->size);
        if (feature->size)
            at = put_bytes(at, feature->payload ? feature->payload : scratch->bytes + feature->at, feature->size);
    }
}

static PyObject *assembled(const struct feature *features, size_t count, const struct scratch *scratch)
{
    size_t size = 0;
    for (size_t n = 0; n < count; n++) {
        size_t entry = sizes_of(&features[n]).entry;
        size += 1 + varint_size(entry) + entry;
    }
    PyObject *data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(1 + varint_size(size) + size));
    if (!data)
        return NULL;
    uint8_t *at = (uint8_t *)PyBytes_AsString(data);
    if (size < LARGE)
        put_features(at, features, count, size, scratch);
    else {
        Py_BEGIN_ALLOW_THREADS
        put_features(at, features, count, size, scratch);
        Py_END_ALLOW_THREADS
    }
    return data;
}

/* Take references to all names and values before any Python code can run. Return the number of features. */
static size_t hold(struct feature *features, PyObject *mapping)
{
    PyObject *name, *value;
    Py_ssize_t position = 0;
    size_t count = 0;
    for (; PyDict_Next(mapping, &position, &name, &value); count++) {
        memset(&features[count], 0, sizeof features[count]);
        features[count].name = Py_NewRef(name);
        features[count].value = Py_NewRef(value);
    }
    return count;
}

static void let_go(struct feature *features, size_t count)
{
    for (size_t n = 0; n < count; n++) {
        if (features[n].view.obj)
            PyBuffer_Release(&features[n].view);
        Py_XDECREF(features[n].holder);
        Py_DECREF(features[n].name);
        Py_DECREF(features[n].value);
    }
}

static int use_feature(
    struct feature *feature, struct scratch *scratch, PyObject *narrow, PyTypeObject *array, PyObject *raw_of)
{
    Py_ssize_t size = 0;
    if (!PyUnicode_CheckExact(feature->name))
        return REFUSED;
    feature->key = (const uint8_t *)PyUnicode_AsUTF8AndSize(feature->name, &size);
    feature->key_size = (size_t)size;
    if (!feature->key) {
        PyErr_Clear();
        return REFUSED;
    }
    feature->at = scratch->used;
    int kind = use_value(feature, scratch, array, narrow == Py_True);
    if (kind == UNKNOWN) {
        scratch->used = feature->at;
        kind = ask(feature, scratch, raw_of, narrow);
    }
    if (!feature->payload)
        feature->size = scratch->used - feature->at;
    feature->kind = kind;
    return kind;
}

PyObject *py_encode_example(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs != 4 || !PyDict_CheckExact(args[0]) || !PyBool_Check(args[1]) || !PyType_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "encode_example(features, narrow, array_type, raw_of)");
        return NULL;
    }
    struct feature few[FEW], *features = few;
    size_t count = (size_t)PyDict_Size(args[0]);
    if (count > FEW && !(features = calloc(count, sizeof *features)))
        return PyErr_NoMemory();
    count = hold(features, args[0]);
    struct scratch scratch = {NULL, 0, 0};
    PyObject *data = NULL;
    int kind = NONE;
    for (size_t n = 0; n < count && kind >= 0; n++)
        kind = use_feature(&features[n], &scratch, args[1], (PyTypeObject *)args[2], args[3]);
    if (kind == REFUSED)
        data = Py_NewRef(Py_None);
    else if (kind != FAILED) {
        put_in_order(features, count);
        data = assembled(features, count, &scratch);
    } else if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "raw_of gives a kind, and bytes or a list of bytes");
    let_go(features, count);
    free(scratch.bytes);
    if (features != few)
        free(features);
    return data;
}
