/* Framing in C: what asyncrec/_framing/encoding.py and frames.py do with NumPy, in a third of the time for small records.
 * It is optional: where no compiler is at hand the package installs without it, and works the same.
 *
 * The checksums of records come from the package crc32c, called as Python calls it: 50 ns each, for hardware
 * instructions on every platform that package knows. Those of the 8-byte lengths are looked up, as in crc.py. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { HEADER = 12, FOOTER = 4 };

static PyObject *crc32c;         /* the function */
static uint32_t terms[8][256];   /* what each byte of a length adds to the CRC; that of 8 zeros is folded into row 0 */

static uint32_t crc_of_8(uint64_t value)
{
    uint32_t crc = 0xFFFFFFFFu;
    for (int bit = 0; bit < 64; bit++) {
        crc ^= (uint32_t)(value >> bit) & 1u;
        crc = (crc >> 1) ^ (crc & 1u ? 0x82F63B78u : 0u);
    }
    return ~crc;
}

static void make_terms(void)
{
    uint32_t zeros = crc_of_8(0);
    for (int place = 0; place < 8; place++)
        for (int value = 0; value < 256; value++)
            terms[place][value] = crc_of_8((uint64_t)value << (8 * place)) ^ (place ? zeros : 0);
}

static uint32_t mask(uint32_t crc)
{
    return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

static char *put(char *at, uint64_t value, int bytes)
{
    for (int n = 0; n < bytes; n++)
        *at++ = (char)(value >> (8 * n));
    return at;
}

static uint64_t get(const char *at, int bytes)
{
    uint64_t value = 0;
    for (int n = 0; n < bytes; n++)
        value |= (uint64_t)(unsigned char)at[n] << (8 * n);
    return value;
}

static uint32_t masked_crc_of_length(uint64_t length)
{
    uint32_t crc = terms[0][length & 0xFF];
    for (int place = 1; place < 8 && length >> (8 * place); place++)
        crc ^= terms[place][(length >> (8 * place)) & 0xFF];
    return mask(crc);
}

static char *put_header(char *at, uint64_t length)
{
    return put(put(at, length, 8), masked_crc_of_length(length), 4);
}

/* The masked CRC of a record, or -1 with an exception set. */
static int64_t footer_of(PyObject *record)
{
    PyObject *result = PyObject_CallOneArg(crc32c, record);
    if (!result)
        return -1;
    unsigned long crc = PyLong_AsUnsignedLong(result);
    Py_DECREF(result);
    if (crc == (unsigned long)-1 && PyErr_Occurred())
        return -1;
    return mask((uint32_t)crc);
}

/* One buffer: the footer of a large record before, if there is one, the frames of small ones, and the header of the
 * large one that follows, if one does. */
static PyObject *make_run(PyObject *records, Py_ssize_t begin, Py_ssize_t end, Py_ssize_t size, int64_t before)
{
    PyObject *run = PyBytes_FromStringAndSize(NULL, size);
    if (!run)
        return NULL;
    char *at = PyBytes_AS_STRING(run);
    if (before >= 0)
        at = put(at, (uint64_t)before, FOOTER);
    for (Py_ssize_t n = begin; n < end; n++) {
        PyObject *record = PyTuple_GET_ITEM(records, n);
        Py_ssize_t length = PyBytes_GET_SIZE(record);
        int64_t footer = footer_of(record);
        if (footer < 0) {
            Py_DECREF(run);
            return NULL;
        }
        at = put_header(at, (uint64_t)length);
        memcpy(at, PyBytes_AS_STRING(record), (size_t)length);
        at = put(at + length, (uint64_t)footer, FOOTER);
    }
    if (end < PyTuple_GET_SIZE(records))
        put_header(at, (uint64_t)PyBytes_GET_SIZE(PyTuple_GET_ITEM(records, end)));
    return run;
}

static int append_new(PyObject *list, PyObject *item)
{
    if (!item)
        return -1;
    int failed = PyList_Append(list, item);
    Py_DECREF(item);
    return failed;
}

static PyObject *encode_frames(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "encode_frames(records, handed_on)");
        return NULL;
    }
    Py_ssize_t handed_on = PyLong_AsSsize_t(args[1]);
    if (handed_on == -1 && PyErr_Occurred())
        return NULL;
    /* A tuple of our own: crc32c gives up the GIL for longer records, and the caller's list may change. */
    PyObject *records = PySequence_Tuple(args[0]);
    if (!records)
        return NULL;
    PyObject *buffers = PyList_New(0);
    if (!buffers)
        goto failed;
    Py_ssize_t count = PyTuple_GET_SIZE(records), begin = 0;
    int64_t before = -1;
    for (;;) {
        Py_ssize_t size = before >= 0 ? FOOTER : 0, end = begin;
        for (; end < count; end++) {
            PyObject *record = PyTuple_GET_ITEM(records, end);
            if (!PyBytes_Check(record)) {
                PyErr_Format(PyExc_TypeError, "a record is bytes, not %.100s", Py_TYPE(record)->tp_name);
                goto failed;
            }
            if (PyBytes_GET_SIZE(record) >= handed_on)
                break;
            size += HEADER + PyBytes_GET_SIZE(record) + FOOTER;
        }
        if (end < count)
            size += HEADER;
        if (size && append_new(buffers, make_run(records, begin, end, size, before)))
            goto failed;
        if (end == count)
            break;
        PyObject *large = PyTuple_GET_ITEM(records, end);
        if (PyList_Append(buffers, large) || (before = footer_of(large)) < 0)
            goto failed;
        begin = end + 1;
    }
    Py_DECREF(records);
    return buffers;
failed:
    Py_DECREF(records);
    Py_XDECREF(buffers);
    return NULL;
}

/* Whole frames only: at the first that is not, or not good, it stops, and Python says what is the matter. */
static PyObject *cut_frames(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs != 5 || !PyBytes_Check(args[0]) || !PyList_Check(args[4])) {
        PyErr_SetString(PyExc_TypeError, "cut_frames(data, position, max_record_bytes, verify, records)");
        return NULL;
    }
    const char *data = PyBytes_AS_STRING(args[0]);
    Py_ssize_t size = PyBytes_GET_SIZE(args[0]), position = PyLong_AsSsize_t(args[1]);
    if (position == -1 && PyErr_Occurred())
        return NULL;
    Py_ssize_t most = PyLong_AsSsize_t(args[2]);
    if (most == -1 && PyErr_Occurred())
        return NULL;
    int verify = PyObject_IsTrue(args[3]);
    if (verify < 0)
        return NULL;
    if (position < 0 || position > size) {
        PyErr_SetString(PyExc_ValueError, "the position is outside the data");
        return NULL;
    }
    while (size - position >= HEADER + FOOTER) {
        uint64_t length = get(data + position, 8);
        if (masked_crc_of_length(length) != get(data + position + 8, 4) || length > (uint64_t)most ||
            length > (uint64_t)(size - position - HEADER - FOOTER))
            break;
        PyObject *record = PyBytes_FromStringAndSize(data + position + HEADER, (Py_ssize_t)length);
        if (!record)
            return NULL;
        int64_t footer = verify ? footer_of(record) : 0;
        int good = !verify || (uint64_t)footer == get(data + position + HEADER + length, FOOTER);
        int failed = footer < 0 || (good && PyList_Append(args[4], record));
        Py_DECREF(record);
        if (failed)
            return NULL;
        if (!good)
            break;
        position += HEADER + (Py_ssize_t)length + FOOTER;
    }
    return PyLong_FromSsize_t(position);
}

static PyMethodDef methods[] = {
    {"cut_frames", (PyCFunction)(void (*)(void))cut_frames, METH_FASTCALL,
     "cut_frames(data, position, max_record_bytes, verify, records) -> where the first frame begins that is not whole\n"
     "and good in data; those before it are appended to records"},
    {"encode_frames", (PyCFunction)(void (*)(void))encode_frames, METH_FASTCALL,
     "encode_frames(records, handed_on) -> list of buffers; see asyncrec._framing.frames"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "asyncrec._framing._native",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__native(void)
{
    PyObject *package = PyImport_ImportModule("crc32c");
    if (!package)
        return NULL;
    crc32c = PyObject_GetAttrString(package, "crc32c");
    Py_DECREF(package);
    if (!crc32c)
        return NULL;
    make_terms();
    return PyModule_Create(&definition);
}
