/* The module asyncrec._native._c. Each function is documented next to the Python code that it replaces. */

#include "native.h"

#define FAST(function) (PyCFunction)(void (*)(void))(function), METH_FASTCALL

static PyMethodDef methods[] = {
    {"crc32c", FAST(py_crc32c), "crc32c(data, value=0) -> the CRC-32C of data, carried on from value"},
    {"crc32c_by_tables", FAST(py_crc32c_by_tables), "crc32c, without the processor's instruction: for tests"},
    {"crc32c_path", py_crc32c_path, METH_NOARGS, "crc32c_path() -> how: 'sse4.2', 'armv8' or 'tables'"},
    {"crc64nvme", py_crc64nvme, METH_O, "crc64nvme(data) -> the CRC-64/NVME of data"},
    {"crc64nvme_by_tables", py_crc64nvme_by_tables, METH_O, "crc64nvme, without the processor's instruction: for tests"},
    {"cut_frames", FAST(py_cut_frames),
     "cut_frames(data, position, max_record_bytes, verify, records) -> where the first frame begins that is not whole\n"
     "and good in data; those before it are appended to records"},
    {"encode_example", FAST(py_encode_example),
     "encode_example(features, narrow, array_type, raw_of) -> bytes, or None where something is refused: Python says\n"
     "what. raw_of(value, narrow) gives the kind and payload of values of rarer types"},
    {"encode_frames", FAST(py_encode_frames),
     "encode_frames(records, handed_on) -> list of buffers; see asyncrec._framing.encoding"},
    {"encode_index", FAST(py_encode_index),
     "encode_index(start, lengths, member) -> the lines of an index; member is -1 where there is none"},
    {"example_columns", FAST(py_example_columns),
     "example_columns(records, names, kinds, ask) -> for each name its values, as a bytearray of int64 or float32 or a\n"
     "list of bytes, and a bytearray of int64: how many each record has, -1 where it has none. Of the kind 4, bytes\n"
     "joined, the values are a bytearray of all and a bytearray of int64: where each begins, and the last one ends.\n"
     "ask(row, odd) is called for one row of each layout, and raises if that is refused; and for an odd row, to return\n"
     "it in the usual form"},
    {"fitting", FAST(py_fitting),
     "fitting(records, begin, most_bytes, longest) -> where those end that fit, and the bytes of their frames"},
    {"int64_values", py_int64_values, METH_O,
     "int64_values(payload) -> a bytearray of the int64 values in packed varints, or None where one is cut short or\n"
     "longer than ten bytes"},
    {"join_digests", py_join_digests, METH_O,
     "join_digests(keys) -> the digests of all, in one; a bytearray among the keys is a digest already"},
    {"key_digest", py_key_digest, METH_O, "key_digest(key) -> 16 bytes of BLAKE2b; a str is taken as UTF-8"},
    {"key_digests", py_key_digests, METH_O, "key_digests(keys) -> the digest of each, in a list"},
    {"lengths_of", py_lengths_of, METH_O, "lengths_of(records) -> how long each is, 8 bytes in the machine's order"},
    {"measure_frames", FAST(py_measure_frames),
     "measure_frames(data, position, max_record_bytes, verify) -> where the first frame begins that is not whole and\n"
     "good in data, and the lengths of the records before it, 8 bytes each in the machine's order"},
    {"parse_example", py_parse_example, METH_O,
     "parse_example(data) -> the features of an Example, or None for one that is not in the usual form"},
    {"parse_index", py_parse_index, METH_O,
     "parse_index(text) -> the bytes that a size takes, the sizes, and the runs: see asyncrec._records.index; or None\n"
     "for what is not as encode_index writes it, which Python reads or refuses"},
    {"sums_before", FAST(py_sums_before),
     "sums_before(sizes, width, coarse, block, within) -> of each of these numbers the sum of the sizes before it, in\n"
     "8 bytes; coarse has those before each block"},
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
