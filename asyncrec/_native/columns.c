/* Convert serialised Examples to columns, as asyncrec/example/_columns.py and _scan.py do with NumPy.
 *
 * This file reads records in the usual form, which every writer uses: one Features message, each entry of which has a
 * name and one list. Numbers are packed, and no name occurs twice. Any other record is called odd. Python reads an odd
 * record and returns it in the usual form.
 *
 * Python also checks the features of the records, once for each layout. A layout is a set of names with the kinds of
 * their lists. It has four bits for each name, one of which is set to show the kind. Checked layouts are kept.
 *
 * Rows are read without the GIL, until one needs Python because it has a new layout, is odd, or does not fit in a
 * column. The values already taken from that row are then removed, and the row is read again. */

#include "native.h"

enum { NONE, BYTES, FLOAT, INT64, JOINED }; /* JOINED is BYTES, returned in one buffer instead of a list */
enum status { FITS, END, ODD, NEW_LAYOUT, NO_ROOM, NO_MEMORY };

/* The maximum numbers of column names, of other names, and of layouts. Other names are kept because they are part of a
 * layout. Beyond the last two limits, Python is asked. */
enum { MOST_WANTED = 1000, MOST_OTHERS = 512, MOST_LAYOUTS = 256 };
enum { BITS = 4, A_WORD = 64 / BITS };

struct bytes {
    const uint8_t *at;
    size_t size;
};

struct column {
    int kind, joined;
    PyObject *counts_object, *numbers_object; /* bytearrays of int64, and of int64 or float32 */
    int64_t *counts;                          /* -1 if a row lacks the feature */
    uint8_t *numbers;
    size_t used, room; /* the number of bytes for numbers, the number of texts for texts */
    size_t wants;      /* the number of bytes needed, after NO_ROOM */
    struct bytes *texts;
};

struct batch {
    struct bytes *rows;
    size_t count, row, total; /* the number of rows, the current row, and the bytes of all rows */
    struct column *columns;
    size_t wanted;
    /* The first names are those of the columns. `order` contains the numbers of the names in sorted order. `after`
     * contains, for each name, the name that last followed it in a record. Its last item is a record's first name. */
    struct bytes *names;
    uint16_t *order, *after;
    size_t named;
    uint64_t *bits, *layouts; /* the layout of this row, and the checked layouts, of `width` words each */
    size_t width, checked, last, accepted; /* `accepted` is 1 + a row that needs no check, or 0 */
    size_t foreseen; /* the bytes of room that columns have for later rows */
};

/* Compare names by their length, then by their bytes. */
static int compare(const struct bytes *name, const uint8_t *at, size_t size)
{
    if (name->size != size)
        return name->size < size ? -1 : 1;
    return size ? memcmp(name->at, at, size) : 0;
}

/* Return the number of a name, or -1 if there are too many names. This is a binary search rather than a hash table,
 * which a hostile file could make slow. */
static int name_of(struct batch *batch, const uint8_t *at, size_t size, size_t before)
{
    uint16_t guess = batch->after[before];
    if (guess < batch->named && !compare(&batch->names[guess], at, size))
        return guess;
    size_t low = 0, high = batch->named;
    while (low < high) {
        size_t middle = (low + high) / 2;
        uint16_t number = batch->order[middle];
        int found = compare(&batch->names[number], at, size);
        if (!found)
            return batch->after[before] = number;
        if (found < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (batch->named == batch->wanted + MOST_OTHERS)
        return -1;
    memmove(batch->order + low + 1, batch->order + low, (batch->named - low) * sizeof *batch->order);
    batch->names[batch->named] = (struct bytes){at, size};
    batch->order[low] = (uint16_t)batch->named;
    return batch->after[before] = (uint16_t)batch->named++;
}

static enum status take_texts(struct column *column, size_t row, const uint8_t *at, const uint8_t *end)
{
    int64_t count = 0;
    size_t size;
    for (; at < end; at += size, count++) {
        if (!(at = field_at(at, end, 0x0A, &size)))
            return ODD;
        if (!column) /* unwanted texts must also be valid */
            continue;
        if (column->used == column->room) {
            size_t room = column->room ? 2 * column->room : 256;
            struct bytes *texts = realloc(column->texts, room * sizeof *texts);
            if (!texts)
                return NO_MEMORY;
            column->texts = texts;
            column->room = room;
        }
        column->texts[column->used++] = (struct bytes){at, size};
        column->counts[row] = count + 1; /* set at once, so that the texts can be removed again */
    }
    if (column)
        column->counts[row] = count;
    return FITS;
}

static inline enum status reserve(struct column *column, size_t size)
{
    if (size <= column->room - column->used)
        return FITS;
    column->wants = size;
    return NO_ROOM;
}

static enum status take_integers(struct column *column, size_t row, const uint8_t *at, size_t size)
{
    size_t count = count_varints(at, size);
    if (size && at[size - 1] >= 0x80)
        return ODD;
    enum status status = reserve(column, 8 * count);
    if (status)
        return status;
    if (!take_varints(at, size, column->numbers + column->used))
        return ODD;
    column->used += 8 * count;
    column->counts[row] = (int64_t)count;
    return FITS;
}

static enum status take_numbers(struct column *column, size_t row, int kind, const uint8_t *at, const uint8_t *end)
{
    size_t size = 0;
    if (at < end) {
        at = field_at(at, end, 0x0A, &size);
        if (!at || at + size != end)
            return ODD;
    }
    if (kind == FLOAT && size % 4)
        return ODD;
    if (!column)
        return FITS;
    if (kind == INT64)
        return take_integers(column, row, at, size);
    enum status status = reserve(column, size);
    if (status)
        return status;
    put_bytes(column->numbers + column->used, at, size);
    column->used += size;
    column->counts[row] = (int64_t)(size / 4);
    return FITS;
}

static enum status take_entry(struct batch *batch, const uint8_t *at, const uint8_t *end, size_t *before)
{
    size_t size;
    const uint8_t *key = field_at(at, end, 0x0A, &size);
    if (!key)
        return ODD;
    int name = name_of(batch, key, size, *before);
    at = field_at(key + size, end, 0x12, &size);
    if (name < 0 || !at || at + size != end)
        return ODD;
    *before = (size_t)name;
    int kind = NONE;
    if (size) {
        kind = *at >> 3;
        if (kind < BYTES || kind > INT64)
            return ODD;
        at = field_at(at, end, (uint8_t)(kind << 3 | 2), &size);
        if (!at || at + size != end)
            return ODD;
    }
    uint64_t *word = &batch->bits[name / A_WORD];
    int shift = BITS * (name % A_WORD);
    if (*word >> shift & ((1 << BITS) - 1))
        return ODD; /* the name occurs twice */
    *word |= (uint64_t)1 << (shift + kind);
    if (kind == NONE)
        return FITS;
    struct column *column = (size_t)name < batch->wanted ? &batch->columns[name] : NULL;
    if (column && column->kind != kind)
        column = NULL; /* the kind is rejected when the layout is checked */
    return kind == BYTES ? take_texts(column, batch->row, at, end) : take_numbers(column, batch->row, kind, at, end);
}

static int is_checked(struct batch *batch, size_t words)
{
    if (batch->accepted == batch->row + 1)
        return 1;
    for (size_t n = 0; n < batch->checked; n++) {
        size_t layout = batch->last + n < batch->checked ? batch->last + n : batch->last + n - batch->checked;
        if (!memcmp(batch->layouts + layout * batch->width, batch->bits, words * sizeof *batch->bits)) {
            batch->last = layout;
            return 1;
        }
    }
    return 0;
}

static enum status take_row(struct batch *batch)
{
    const uint8_t *at = batch->rows[batch->row].at, *end = at + batch->rows[batch->row].size;
    size_t size, before = batch->wanted + MOST_OTHERS;
    enum status fits = FITS;
    memset(batch->bits, 0, batch->width * sizeof *batch->bits);
    if (at < end) {
        at = field_at(at, end, 0x0A, &size);
        if (!at || at + size != end)
            return ODD;
    }
    while (at < end) {
        at = field_at(at, end, 0x0A, &size);
        if (!at)
            return ODD;
        enum status status = take_entry(batch, at, at + size, &before);
        if (status == NO_ROOM)
            fits = NO_ROOM; /* continue, to find out how much room all columns need */
        else if (status)
            return status;
        at += size;
    }
    if (fits == NO_ROOM)
        return NO_ROOM; /* numbers that did not fit were not read. They may be odd, which must be found out first */
    return is_checked(batch, batch->named / A_WORD + 1) ? FITS : NEW_LAYOUT;
}

/* Read rows, starting at the current one, until one needs Python. */
static enum status take_rows(struct batch *batch)
{
    for (; batch->row < batch->count; batch->row++) {
        enum status status = take_row(batch);
        if (!status)
            continue;
        for (size_t n = 0; n < batch->wanted; n++) {
            struct column *column = &batch->columns[n];
            int64_t *count = &column->counts[batch->row];
            if (*count > 0)
                column->used -= (size_t)*count * (column->kind == BYTES ? 1 : column->kind == FLOAT ? 4 : 8);
            *count = -1;
            if (status != NO_ROOM)
                column->wants = 0;
        }
        return status;
    }
    return END;
}

/* Make the room that a row needs in its columns. The first time, reserve as much for each remaining row, but for all
 * columns together no more than all records can contain. After that, enlarge a column by half. */
static int make_room(struct batch *batch)
{
    for (size_t n = 0; n < batch->wanted; n++) {
        struct column *column = &batch->columns[n];
        if (!column->wants)
            continue;
        size_t more = column->room / 2;
        if (!column->room) {
            size_t most = 8 * batch->total - batch->foreseen, left = batch->count - batch->row;
            more = column->wants <= most / left ? column->wants * left : most;
            batch->foreseen += more;
        }
        size_t room = column->used + (more > column->wants ? more : column->wants);
        column->wants = 0;
        if (PyByteArray_Resize(column->numbers_object, (Py_ssize_t)room))
            return -1;
        column->numbers = (uint8_t *)PyByteArray_AsString(column->numbers_object);
        column->room = room;
    }
    return 0;
}

/* Keep the layout of this row, which Python has checked, unless there are already too many layouts. */
static int keep_layout(struct batch *batch)
{
    batch->accepted = batch->row + 1;
    if (batch->checked == MOST_LAYOUTS)
        return 0;
    size_t size = batch->width * sizeof *batch->layouts;
    if (!(batch->checked & (batch->checked - 1))) { /* full if 0 or a power of two */
        uint64_t *layouts = realloc(batch->layouts, (batch->checked ? 2 * batch->checked : 1) * size);
        if (!layouts) {
            PyErr_NoMemory();
            return -1;
        }
        batch->layouts = layouts;
    }
    memcpy(batch->layouts + batch->checked * batch->width, batch->bits, size);
    batch->last = batch->checked++;
    return 0;
}

static PyObject *asked(PyObject *ask, size_t row, int odd)
{
    return PyObject_CallFunction(ask, "nO", (Py_ssize_t)row, odd ? Py_True : Py_False);
}

/* Replace the row with Python's version of it, which has the usual form and has been checked. Keep the original record,
 * because names may point into it. */
static int rewrite(struct batch *batch, PyObject *ask, PyObject *records)
{
    int again = batch->accepted == batch->row + 1;
    PyObject *record = asked(ask, batch->row, 1);
    if (!record)
        return -1;
    if (again || !PyBytes_Check(record)) {
        PyErr_SetString(PyExc_TypeError, "ask gives a record in the usual form");
        Py_DECREF(record);
        return -1;
    }
    batch->rows[batch->row] = (struct bytes){(const uint8_t *)PyBytes_AsString(record), (size_t)PyBytes_Size(record)};
    batch->total += batch->rows[batch->row].size;
    batch->accepted = batch->row + 1;
    int failed = PyList_Append(records, record);
    Py_DECREF(record);
    return failed;
}

static int read_rows(struct batch *batch, PyObject *ask, PyObject *records)
{
    for (;;) {
        enum status status;
        if (batch->total < WORTH_LETTING_GO)
            status = take_rows(batch);
        else {
            Py_BEGIN_ALLOW_THREADS
            status = take_rows(batch);
            Py_END_ALLOW_THREADS
        }
        int failed = 0;
        switch (status) {
        case END:
            return 0;
        case NEW_LAYOUT: {
            PyObject *nothing = asked(ask, batch->row, 0);
            failed = !nothing || keep_layout(batch);
            Py_XDECREF(nothing);
            break;
        }
        case NO_ROOM:
            failed = make_room(batch);
            break;
        case NO_MEMORY:
            PyErr_NoMemory();
            return -1;
        default:
            failed = rewrite(batch, ask, records);
        }
        if (failed)
            return -1;
    }
}

static PyObject *list_of(const struct bytes *texts, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t n = 0; list && n < count; n++) {
        PyObject *text = PyBytes_FromStringAndSize((const char *)texts[n].at, (Py_ssize_t)texts[n].size);
        if (!text || PyList_SetItem(list, (Py_ssize_t)n, text)) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

static void join(const struct bytes *texts, size_t count, uint8_t *to, uint8_t *offsets)
{
    uint64_t at = 0;
    for (size_t n = 0; n < count; at += texts[n++].size) {
        offsets = put64(offsets, at);
        to = put_bytes(to, texts[n].at, texts[n].size);
    }
    put64(offsets, at);
}

/* Return the texts joined, and also the offset at which each text begins and the offset at which the last one ends. */
static PyObject *joined_of(const struct bytes *texts, size_t count)
{
    size_t total = 0;
    for (size_t n = 0; n < count; n++)
        total += texts[n].size;
    PyObject *contents = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)total);
    PyObject *offsets = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(8 * (count + 1)));
    PyObject *pair = contents && offsets ? PyTuple_Pack(2, contents, offsets) : NULL;
    if (pair) {
        uint8_t *to = (uint8_t *)PyByteArray_AsString(contents), *begins = (uint8_t *)PyByteArray_AsString(offsets);
        if (total < WORTH_LETTING_GO)
            join(texts, count, to, begins);
        else {
            Py_BEGIN_ALLOW_THREADS
            join(texts, count, to, begins);
            Py_END_ALLOW_THREADS
        }
    }
    Py_XDECREF(contents);
    Py_XDECREF(offsets);
    return pair;
}

static PyObject *results_of(struct batch *batch)
{
    PyObject *results = PyList_New(0);
    for (size_t n = 0; results && n < batch->wanted; n++) {
        struct column *column = &batch->columns[n];
        PyObject *flat = NULL, *pair = NULL;
        if (column->joined)
            flat = joined_of(column->texts, column->used);
        else if (column->kind == BYTES)
            flat = list_of(column->texts, column->used);
        else if (!PyByteArray_Resize(column->numbers_object, (Py_ssize_t)column->used))
            flat = Py_NewRef(column->numbers_object);
        if (flat)
            pair = PyTuple_Pack(2, flat, column->counts_object);
        Py_XDECREF(flat);
        if (!pair || PyList_Append(results, pair))
            Py_CLEAR(results);
        Py_XDECREF(pair);
    }
    return results;
}

/* Set the rows from the records. Convert other buffers to bytes. */
static int use_records(struct batch *batch, PyObject *records)
{
    batch->count = (size_t)PyList_Size(records);
    batch->rows = calloc(batch->count + 1, sizeof *batch->rows);
    if (!batch->rows) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t n = 0; n < batch->count; n++) {
        PyObject *record = PyList_GetItem(records, (Py_ssize_t)n);
        if (!PyBytes_Check(record)) {
            if (!PyObject_CheckBuffer(record)) {
                PyErr_SetString(PyExc_TypeError, "a record is bytes, or a buffer of them");
                return -1;
            }
            record = PyBytes_FromObject(record);
            if (!record || PyList_SetItem(records, (Py_ssize_t)n, record))
                return -1;
        }
        batch->rows[n] = (struct bytes){(const uint8_t *)PyBytes_AsString(record), (size_t)PyBytes_Size(record)};
        batch->total += batch->rows[n].size;
    }
    return 0;
}

static int use_names(struct batch *batch, PyObject *names, const char *kinds)
{
    size_t most = batch->wanted + MOST_OTHERS;
    batch->width = most / A_WORD + 1;
    batch->columns = calloc(batch->wanted + 1, sizeof *batch->columns);
    batch->names = calloc(most, sizeof *batch->names);
    batch->order = calloc(most, sizeof *batch->order);
    batch->after = calloc(most + 1, sizeof *batch->after);
    batch->bits = calloc(batch->width, sizeof *batch->bits);
    if (!batch->columns || !batch->names || !batch->order || !batch->after || !batch->bits) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t n = 0; n < batch->wanted; n++) {
        PyObject *name = PyTuple_GetItem(names, (Py_ssize_t)n);
        if (!name || !PyBytes_Check(name) || kinds[n] < BYTES || kinds[n] > JOINED ||
            name_of(batch, (const uint8_t *)PyBytes_AsString(name), (size_t)PyBytes_Size(name), most) != (int)n) {
            PyErr_SetString(PyExc_TypeError, "names are bytes, each of another name, with a kind for each");
            return -1;
        }
        struct column *column = &batch->columns[n];
        column->joined = kinds[n] == JOINED;
        column->kind = column->joined ? BYTES : kinds[n];
        column->counts_object = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(batch->count * 8));
        column->numbers_object = PyByteArray_FromStringAndSize(NULL, 0);
        if (!column->counts_object || !column->numbers_object)
            return -1;
        column->counts = (int64_t *)(void *)PyByteArray_AsString(column->counts_object);
        if (batch->count)
            memset(column->counts, 0xFF, batch->count * 8);
        column->numbers = (uint8_t *)PyByteArray_AsString(column->numbers_object);
    }
    return 0;
}

static void forget(struct batch *batch)
{
    for (size_t n = 0; batch->columns && n < batch->wanted; n++) {
        Py_XDECREF(batch->columns[n].counts_object);
        Py_XDECREF(batch->columns[n].numbers_object);
        free(batch->columns[n].texts);
    }
    free(batch->rows);
    free(batch->columns);
    free(batch->names);
    free(batch->order);
    free(batch->after);
    free(batch->bits);
    free(batch->layouts);
}

PyObject *py_example_columns(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs != 4 || !PyTuple_Check(args[1]) || !PyBytes_Check(args[2]) ||
        PyTuple_Size(args[1]) != PyBytes_Size(args[2]) || PyTuple_Size(args[1]) > MOST_WANTED) {
        PyErr_SetString(PyExc_TypeError, "example_columns(records, names, kinds, ask)");
        return NULL;
    }
    PyObject *records = PySequence_List(args[0]), *results = NULL;
    if (!records)
        return NULL;
    struct batch batch = {.wanted = (size_t)PyTuple_Size(args[1])};
    if (!use_records(&batch, records) && !use_names(&batch, args[1], PyBytes_AsString(args[2])) &&
        !read_rows(&batch, args[3], records))
        results = results_of(&batch);
    forget(&batch);
    Py_DECREF(records);
    return results;
}
