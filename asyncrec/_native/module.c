/* The module asyncrec._native._c. Each function is documented next to the Python code that it replaces. */

#include "native.h"

#define FAST(function) (PyCFunction)(void (*)(void))(function), METH_FASTCALL

static PyMethodDef methods[] = {
    {"crc32c", FAST(py_crc32c), "crc32c(data, value=0) -> the CRC-32C of data, continued from value"},
    {"crc32c_by_tables", FAST(py_crc32c_by_tables), "crc32c, without the processor's instruction: for tests"},
    {"crc32c_path", py_crc32c_path, METH_NOARGS, "crc32c_path() -> the method in use: 'sse4.2', 'armv8' or 'tables'"},
    {"crc64nvme", py_crc64nvme, METH_O, "crc64nvme(data) -> the CRC-64/NVME of data"},
    {"crc64nvme_by_tables", py_crc64nvme_by_tables, METH_O, "crc64nvme, without the processor's instruction: for tests"},
    {"cut_frames", FAST(py_cut_frames),
     "cut_frames(data, position, max_record_bytes, verify, records) -> the position in data of the first frame that\n"
     "is incomplete or damaged. The records of the frames before it are appended to records"},
    {"encode_example", FAST(py_encode_example),
     "encode_example(features, narrow, array_type, raw_of) -> bytes, or None if a name or value is rejected: Python\n"
     "then raises the error. raw_of(value, narrow) returns the kind and payload of values of less common types"},
    {"encode_frames", FAST(py_encode_frames),
     "encode_frames(records, handed_on) -> list of buffers; see asyncrec._framing.encoding"},
    {"encode_index", FAST(py_encode_index),
     "encode_index(start, lengths, member) -> the lines of an index; member is -1 if there are no members"},
    {"example_columns", FAST(py_example_columns),
     "example_columns(records, names, kinds, ask) -> for each name, its values and a bytearray of int64 with the\n"
     "number of values in each record, or -1 if a record lacks the feature. The values are a bytearray of int64 or\n"
     "float32, or a list of bytes. For kind 4 (joined bytes), they are a bytearray of all values, and a bytearray of\n"
     "int64 with the offset at which each value begins and the offset at which the last one ends. ask(row, odd) is\n"
     "called for one row of each layout, and raises an error if the layout is rejected. For an odd row, it returns\n"
     "the row in the usual form"},
    {"fitting", FAST(py_fitting),
     "fitting(records, begin, most_bytes, longest) -> the end of the records that fit, and the size of their frames"},
    {"int64_values", py_int64_values, METH_O,
     "int64_values(payload) -> a bytearray of the int64 values in packed varints, or None if one is incomplete or\n"
     "longer than ten bytes"},
    {"join_digests", py_join_digests, METH_O,
     "join_digests(keys) -> the joined digests of all keys; a bytearray among the keys is already a digest"},
    {"key_digest", py_key_digest, METH_O, "key_digest(key) -> 16 bytes of BLAKE2b; a str is encoded as UTF-8"},
    {"key_digests", py_key_digests, METH_O, "key_digests(keys) -> a list of the digests of the keys"},
    {"lengths_of", py_lengths_of, METH_O, "lengths_of(records) -> the length of each, as 8 bytes in native byte order"},
    {"measure_frames", FAST(py_measure_frames),
     "measure_frames(data, position, max_record_bytes, verify) -> the position in data of the first frame that is\n"
     "incomplete or damaged, and the lengths of the records before it, as 8 bytes each in native byte order"},
    {"parse_example", py_parse_example, METH_O,
     "parse_example(data) -> the features of an Example, or None for one that is not in the usual form"},
    {"parse_index", py_parse_index, METH_O,
     "parse_index(text) -> the number of bytes per size, the sizes, and the runs (see asyncrec._records.index), or\n"
     "None if the text is not as encode_index writes it: Python then parses it or raises an error"},
    {"sums_before", FAST(py_sums_before),
     "sums_before(sizes, width, coarse, block, within) -> for each number in within, the sum of the sizes before it,\n"
     "as 8 bytes; coarse contains the sums before each block"},
    {NULL, NULL, 0, NULL},
};

static int execute(PyObject *module)
{
    (void)module;
    prepare_crc32c();
    prepare_crc64();
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)execute},
#ifdef Py_mod_gil
    /* The module is not tested without the GIL. The stable ABI of 3.11, which all other builds use, lacks the slot. */
    {Py_mod_gil, Py_MOD_GIL_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "asyncrec._native._c",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__c(void)
{
    return PyModuleDef_Init(&definition);
}
