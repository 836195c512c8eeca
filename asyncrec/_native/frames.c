/* Convert records to frames and back, as asyncrec/_framing/encoding.py and frames.py do with NumPy. */

#include "native.h"

enum { HEADER = 12, FOOTER = 4, OVERHEAD = HEADER + FOOTER };

static uint32_t mask(uint32_t crc)
{
    return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

static uint8_t *put_header(uint8_t *at, uint64_t length)
{
    put64(at, length);
    return put32(at + 8, mask(crc32c_of(0, at, 8)));
}

static uint32_t footer_of(const uint8_t *data, size_t size)
{
    return mask(crc32c_of(0, data, size));
}

/* Return one buffer that contains the footer of the previous large record (if there is one), the frames of small
 * records, and the header of the next large record (if there is one). */
static PyObject *make_run(PyObject *records, Py_ssize_t begin, Py_ssize_t end, Py_ssize_t size, int64_t before)
{
    PyObject *run = PyBytes_FromStringAndSize(NULL, size);
    if (!run)
        return NULL;
    uint8_t *at = (uint8_t *)PyBytes_AsString(run);
    if (before >= 0)
        at = put32(at, (uint32_t)before);
    for (Py_ssize_t n = begin; n < end; n++) {
        PyObject *record = PyTuple_GetItem(records, n);
        const uint8_t *data = (const uint8_t *)PyBytes_AsString(record);
        size_t length = (size_t)PyBytes_Size(record);
        at = put_header(at, length);
        at = put_bytes(at, data, length);
        at = put32(at, footer_of(data, length));
    }
    if (end < PyTuple_Size(records))
        put_header(at, (uint64_t)PyBytes_Size(PyTuple_GetItem(records, end)));
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

PyObject *py_encode_frames(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "encode_frames(records, handed_on)");
        return NULL;
    }
    Py_ssize_t handed_on = PyLong_AsSsize_t(args[1]);
    if (handed_on == -1 && PyErr_Occurred())
        return NULL;
    /* Copy the records to a tuple, because the caller's list may change while the GIL is released for large records. */
    PyObject *records = PySequence_Tuple(args[0]);
    if (!records)
        return NULL;
    PyObject *buffers = PyList_New(0);
    if (!buffers)
        goto failed;
    Py_ssize_t count = PyTuple_Size(records), begin = 0;
    int64_t before = -1;
    for (;;) {
        Py_ssize_t size = before >= 0 ? FOOTER : 0, end = begin;
        for (; end < count; end++) {
            PyObject *record = PyTuple_GetItem(records, end);
            if (!PyBytes_Check(record)) {
                PyErr_SetString(PyExc_TypeError, "a record is bytes");
                goto failed;
            }
            Py_ssize_t length = PyBytes_Size(record);
            if (length >= handed_on)
                break;
            if (length > PY_SSIZE_T_MAX - size - OVERHEAD - HEADER) {
                PyErr_NoMemory();
                goto failed;
            }
            size += OVERHEAD + length;
        }
        if (end < count)
            size += HEADER;
        if (size && append_new(buffers, make_run(records, begin, end, size, before)))
            goto failed;
        if (end == count)
            break;
        PyObject *large = PyTuple_GetItem(records, end);
        if (PyList_Append(buffers, large))
            goto failed;
        const uint8_t *data = (const uint8_t *)PyBytes_AsString(large);
        size_t length = (size_t)PyBytes_Size(large);
        if (length < LARGE)
            before = footer_of(data, length);
        else {
            Py_BEGIN_ALLOW_THREADS
            before = footer_of(data, length);
            Py_END_ALLOW_THREADS
        }
        begin = end + 1;
    }
    Py_DECREF(records);
    return buffers;
failed:
    Py_DECREF(records);
    Py_XDECREF(buffers);
    return NULL;
}

/* The lengths of the intact frames in a stretch of bytes, up to the first frame that is incomplete or damaged. */
struct cut {
    size_t *lengths;
    size_t count, room;
};

/* Measure frames, without using Python, because another thread may be running. If memory runs out, stop as if the next
 * frame were damaged. */
static void measure(struct cut *cut, const uint8_t *at, size_t size, uint64_t most, int verify)
{
    while (size >= OVERHEAD) {
        uint64_t length = get64(at);
        if (mask(crc32c_of(0, at, 8)) != get32(at + 8) || length > most || length > size - OVERHEAD)
            return;
        const uint8_t *data = at + HEADER;
        if (verify && footer_of(data, (size_t)length) != get32(data + length))
            return;
        if (cut->count == cut->room) {
            size_t room = cut->room ? 2 * cut->room : 256;
            size_t *lengths = realloc(cut->lengths, room * sizeof *lengths);
            if (!lengths)
                return;
            cut->lengths = lengths;
            cut->room = room;
        }
        cut->lengths[cut->count++] = (size_t)length;
        at += OVERHEAD + length;
        size -= OVERHEAD + (size_t)length;
    }
}

/* The arguments that cut_frames and measure_frames share: (data, position, max_record_bytes, verify, ...). */
struct stretch {
    const uint8_t *data;
    Py_ssize_t position, size;
    uint64_t most;
    int verify;
};

static int read_stretch(struct stretch *stretch, PyObject *const *args)
{
    stretch->data = (const uint8_t *)PyBytes_AsString(args[0]);
    stretch->size = PyBytes_Size(args[0]);
    stretch->position = PyLong_AsSsize_t(args[1]);
    if (stretch->position == -1 && PyErr_Occurred())
        return -1;
    Py_ssize_t most = PyLong_AsSsize_t(args[2]);
    if (most == -1 && PyErr_Occurred())
        return -1;
    stretch->verify = PyObject_IsTrue(args[3]);
    if (stretch->verify < 0)
        return -1;
    if (stretch->position < 0 || stretch->position > stretch->size || most < 0) {
        PyErr_SetString(PyExc_ValueError, "the position is outside the data, or the limit negative");
        return -1;
    }
    stretch->most = (uint64_t)most;
    return 0;
}

static struct cut measured(const struct stretch *stretch)
{
    struct cut cut = {NULL, 0, 0};
    size_t left = (size_t)(stretch->size - stretch->position);
    if (left < WORTH_LETTING_GO)
        measure(&cut, stretch->data + stretch->position, left, stretch->most, stretch->verify);
    else {
        Py_BEGIN_ALLOW_THREADS
        measure(&cut, stretch->data + stretch->position, left, stretch->most, stretch->verify);
        Py_END_ALLOW_THREADS
    }
    return cut;
}

PyObject *py_cut_frames(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs != 5 || !PyBytes_Check(args[0]) || !PyList_Check(args[4])) {
        PyErr_SetString(PyExc_TypeError, "cut_frames(data, position, max_record_bytes, verify, records)");
        return NULL;
    }
    struct stretch stretch;
    if (read_stretch(&stretch, args))
        return NULL;
    struct cut cut = measured(&stretch);
    Py_ssize_t position = stretch.position;
    int failed = 0;
    for (size_t n = 0; n < cut.count && !failed; n++) {
        Py_ssize_t length = (Py_ssize_t)cut.lengths[n];
        const char *record = (const char *)stretch.data + position + HEADER;
        failed = append_new(args[4], PyBytes_FromStringAndSize(record, length));
        position += OVERHEAD + length;
    }
    free(cut.lengths);
    return failed ? NULL : PyLong_FromSsize_t(position);
}

PyObject *py_measure_frames(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs != 4 || !PyBytes_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "measure_frames(data, position, max_record_bytes, verify)");
        return NULL;
    }
    struct stretch stretch;
    if (read_stretch(&stretch, args))
        return NULL;
    struct cut cut = measured(&stretch);
    /* Each length belongs to a frame in the data, so all lengths together take less memory than the data. */
    PyObject *lengths = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(8 * cut.count));
    if (!lengths) {
        free(cut.lengths);
        return NULL;
    }
    uint8_t *at = (uint8_t *)PyBytes_AsString(lengths);
    Py_ssize_t position = stretch.position;
    for (size_t n = 0; n < cut.count; n++) {
        at = put64(at, (uint64_t)cut.lengths[n]);
        position += OVERHEAD + (Py_ssize_t)cut.lengths[n];
    }
    free(cut.lengths);
    return Py_BuildValue("nN", position, lengths);
}
