/* Parse indexes of shards to the form that asyncrec/_records/index.py uses: the sizes of the frames, in as few bytes as
 * possible, and the runs of consecutive frames. The text is read twice, first to measure the result and then to fill
 * it. */

#include "native.h"

/* A number of 18 digits, and the sum of two of them, fit in 63 bits. Longer numbers are rare, and left to Python. */
enum { MOST_DIGITS = 18, LEAST_FRAME = 16, NUMBER = 8 };

struct line {
    uint64_t offset, size, member;
};

/* What was found in a text, and where to store it. The destinations are NULL when the text is read the first time. */
struct table {
    const uint8_t *text, *end;
    int columns, width;
    size_t count, runs;
    uint64_t largest;
    uint8_t *sizes, *firsts, *offsets, *members;
};

/* Read a number and the byte after it, which must be `end`. The text ends with a newline, which is not a digit, so
 * nothing beyond the text is read. */
static inline const uint8_t *read_number(const uint8_t *at, uint64_t *number, uint8_t end)
{
    const uint8_t *first = at;
    uint64_t value = 0;
    unsigned digit;
    for (; (digit = (unsigned)*at - '0') <= 9 && at - first < MOST_DIGITS; at++)
        value = value * 10 + digit;
    *number = value;
    return at > first && *at == end ? at + 1 : NULL;
}

static inline const uint8_t *read_line(const uint8_t *at, struct line *line, int columns)
{
    at = read_number(at, &line->offset, ' ');
    if (at)
        at = read_number(at, &line->size, columns == 2 ? '\n' : ' ');
    if (at && columns == 3)
        at = read_number(at, &line->member, '\n');
    return at && line->size >= LEAST_FRAME ? at : NULL;
}

static inline uint8_t *put_size(uint8_t *at, uint64_t size, int width)
{
    memcpy(at, &size, (size_t)width); /* the low bytes, because the machine is little-endian */
    return at + width;
}

/* Read the text. Return whether all lines have the form in which asyncrec writes them. */
static int read_table(struct table *table)
{
    struct line line = {0, 0, 0}, last = {0, 0, 0};
    uint8_t *size = table->sizes, *first = table->firsts, *offset = table->offsets, *member = table->members;
    size_t count = 0, runs = 0;
    for (const uint8_t *at = table->text; at < table->end; count++, last = line) {
        at = read_line(at, &line, table->columns);
        if (!at)
            return 0;
        int follows = count && line.offset == last.offset + last.size && line.member == last.member;
        runs += !follows;
        if (!table->sizes) {
            table->largest = line.size > table->largest ? line.size : table->largest;
            continue;
        }
        size = put_size(size, line.size, table->width);
        if (!follows) {
            first = put64(first, count);
            offset = put64(offset, line.offset);
            member = put64(member, table->columns == 3 ? line.member : ~(uint64_t)0);
        }
    }
    table->count = count;
    table->runs = runs;
    return 1;
}

static int read_text(struct table *table)
{
    int well;
    if (table->end - table->text < WORTH_LETTING_GO)
        return read_table(table);
    Py_BEGIN_ALLOW_THREADS
    well = read_table(table);
    Py_END_ALLOW_THREADS
    return well;
}

static int columns_of(const uint8_t *at, const uint8_t *end)
{
    int columns = 1;
    for (; at < end && *at != '\n'; at++)
        columns += *at == ' ';
    return columns;
}

PyObject *py_parse_index(PyObject *module, PyObject *text)
{
    (void)module;
    if (!PyBytes_Check(text)) {
        PyErr_SetString(PyExc_TypeError, "parse_index(text)");
        return NULL;
    }
    struct table table = {.text = (const uint8_t *)PyBytes_AsString(text)};
    table.end = table.text + PyBytes_Size(text);
    if (table.end > table.text && table.end[-1] == '\n')
        table.columns = columns_of(table.text, table.end);
    if ((table.columns != 2 && table.columns != 3) || !read_text(&table))
        Py_RETURN_NONE;
    table.width = table.largest <= INT16_MAX ? 2 : table.largest <= INT32_MAX ? 4 : 8;
    /* A line has at least five bytes, so the sizes are at most twice as long as the text, and the runs five times. */
    PyObject *sizes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(table.count * (size_t)table.width));
    PyObject *runs = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(table.runs * 3 * NUMBER));
    if (!sizes || !runs) {
        Py_XDECREF(sizes);
        Py_XDECREF(runs);
        return NULL;
    }
    table.sizes = (uint8_t *)PyBytes_AsString(sizes);
    table.firsts = (uint8_t *)PyBytes_AsString(runs);
    table.offsets = table.firsts + table.runs * NUMBER;
    table.members = table.offsets + table.runs * NUMBER;
    read_text(&table);
    return Py_BuildValue("iNN", table.width, sizes, runs);
}

static inline uint64_t size_at(const uint8_t *sizes, size_t number, int width)
{
    uint64_t size = 0;
    memcpy(&size, sizes + number * (size_t)width, (size_t)width);
    return size;
}

/* Write, for each number, the sum of the sizes before it. Return -1 if a number is out of range. Callers pass a
 * constant width, so that the compiler can generate a separate loop for each width. */
static int sum_before(uint8_t *sums, const uint8_t *sizes, size_t count, int width, const uint8_t *coarse, size_t block,
                      const uint8_t *within, size_t wanted)
{
    for (size_t n = 0; n < wanted; n++) {
        uint64_t number = get64(within + NUMBER * n);
        if (number >= count)
            return -1;
        size_t first = number - number % block;
        uint64_t sum = get64(coarse + NUMBER * (number / block));
        for (size_t at = first; at < number; at++)
            sum += size_at(sizes, at, width);
        sums = put64(sums, sum);
    }
    return 0;
}

static PyObject *summed(const Py_buffer views[3], Py_ssize_t width, Py_ssize_t block)
{
    const Py_buffer *sizes = &views[0], *coarse = &views[1], *within = &views[2];
    if ((width != 2 && width != 4 && width != 8) || block < 1 || sizes->len % width || within->len % NUMBER) {
        PyErr_SetString(PyExc_ValueError, "sizes of 2, 4 or 8 bytes, and numbers of 8");
        return NULL;
    }
    size_t count = (size_t)(sizes->len / width), wanted = (size_t)(within->len / NUMBER);
    if ((size_t)coarse->len / NUMBER < count / (size_t)block + (count % (size_t)block != 0)) {
        PyErr_SetString(PyExc_ValueError, "there is a sum for each block");
        return NULL;
    }
    PyObject *sums = PyBytes_FromStringAndSize(NULL, within->len);
    if (!sums)
        return NULL;
    uint8_t *at = (uint8_t *)PyBytes_AsString(sums);
    int failed = width == 2   ? sum_before(at, sizes->buf, count, 2, coarse->buf, (size_t)block, within->buf, wanted)
                 : width == 4 ? sum_before(at, sizes->buf, count, 4, coarse->buf, (size_t)block, within->buf, wanted)
                              : sum_before(at, sizes->buf, count, 8, coarse->buf, (size_t)block, within->buf, wanted);
    if (failed) {
        Py_DECREF(sums);
        PyErr_SetString(PyExc_IndexError, "the index has no record with this number");
        return NULL;
    }
    return sums;
}

PyObject *py_sums_before(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs != 5) {
        PyErr_SetString(PyExc_TypeError, "sums_before(sizes, width, coarse, block, within)");
        return NULL;
    }
    Py_ssize_t width = PyLong_AsSsize_t(args[1]), block = PyLong_AsSsize_t(args[3]);
    if (PyErr_Occurred())
        return NULL;
    PyObject *objects[3] = {args[0], args[2], args[4]}, *sums = NULL;
    Py_buffer views[3];
    int held = 0;
    while (held < 3 && !PyObject_GetBuffer(objects[held], &views[held], PyBUF_SIMPLE))
        held++;
    if (held == 3)
        sums = summed(views, width, block);
    while (held)
        PyBuffer_Release(&views[--held]);
    return sums;
}
