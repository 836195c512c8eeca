/* Compute digests of keys (16 bytes of BLAKE2b, RFC 7693), as asyncrec/_shards/writing/keys.py does with hashlib.
 *
 * Most keys are short enough for one block. If the processor has AVX2, four such blocks of a batch are compressed at a
 * time, one in each quarter of its registers, in about the time of a single block. */

#include "native.h"

enum { DIGEST = 16, BLOCK = 128, ROUNDS = 12 };

static const uint64_t initial[8] = {
    0x6A09E667F3BCC908u, 0xBB67AE8584CAA73Bu, 0x3C6EF372FE94F82Bu, 0xA54FF53A5F1D36F1u,
    0x510E527FADE682D1u, 0x9B05688C2B3E6C1Fu, 0x1F83D9ABFB41BD6Bu, 0x5BE0CD19137E2179u,
};

static const uint8_t order[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

static inline uint64_t turned(uint64_t value, int bits)
{
    return value >> bits | value << (64 - bits);
}

static inline void mix(uint64_t *a, uint64_t *b, uint64_t *c, uint64_t *d, uint64_t x, uint64_t y)
{
    *a += *b + x;
    *d = turned(*d ^ *a, 32);
    *c += *d;
    *b = turned(*b ^ *c, 24);
    *a += *b + y;
    *d = turned(*d ^ *a, 16);
    *c += *d;
    *b = turned(*b ^ *c, 63);
}

/* Compress a block. Any key fits in memory, so only 64 of the 128 bits of its byte count are used. */
static void compress(uint64_t state[8], const uint8_t block[BLOCK], uint64_t count, int last)
{
    uint64_t m[16], v[16];
    for (int n = 0; n < 16; n++)
        m[n] = get64(block + 8 * n);
    memcpy(v, state, 64);
    memcpy(v + 8, initial, 64);
    v[12] ^= count;
    v[14] ^= last ? ~(uint64_t)0 : 0;
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC unroll 12
#endif
    for (int round = 0; round < ROUNDS; round++) {
        const uint8_t *at = order[round % 10];
        mix(&v[0], &v[4], &v[8], &v[12], m[at[0]], m[at[1]]);
        mix(&v[1], &v[5], &v[9], &v[13], m[at[2]], m[at[3]]);
        mix(&v[2], &v[6], &v[10], &v[14], m[at[4]], m[at[5]]);
        mix(&v[3], &v[7], &v[11], &v[15], m[at[6]], m[at[7]]);
        mix(&v[0], &v[5], &v[10], &v[15], m[at[8]], m[at[9]]);
        mix(&v[1], &v[6], &v[11], &v[12], m[at[10]], m[at[11]]);
        mix(&v[2], &v[7], &v[8], &v[13], m[at[12]], m[at[13]]);
        mix(&v[3], &v[4], &v[9], &v[14], m[at[14]], m[at[15]]);
    }
    for (int n = 0; n < 8; n++)
        state[n] ^= v[n] ^ v[n + 8];
}

#define PARAMETERS (0x01010000u ^ DIGEST) /* unkeyed, and not a tree */

static void digest_into(uint8_t *digest, const uint8_t *at, size_t size)
{
    uint64_t state[8], count = 0;
    uint8_t last[BLOCK] = {0};
    memcpy(state, initial, sizeof state);
    state[0] ^= PARAMETERS;
    for (; size > BLOCK; size -= BLOCK, at += BLOCK)
        compress(state, at, count += BLOCK, 0);
    put_bytes(last, at, size);
    compress(state, last, count + size, 1);
    memcpy(digest, state, DIGEST);
}

static PyObject *digest_of(const uint8_t *at, size_t size)
{
    uint8_t digest[DIGEST];
    digest_into(digest, at, size);
    return PyBytes_FromStringAndSize((const char *)digest, DIGEST);
}

/* A key of at most one block, and the destination of its digest. */
struct waiting {
    uint8_t block[BLOCK];
    size_t size;
    uint8_t *digest;
};

enum { LANES = 4 };

#if defined(__x86_64__) && defined(__GNUC__)
#define HAS_LANES

typedef uint64_t lanes __attribute__((vector_size(8 * LANES)));

#define TURNED(value, bits) ((value) >> (bits) | (value) << (64 - (bits)))
#define MIX(a, b, c, d, x, y) \
    do { \
        a += b + (x); \
        d = TURNED(d ^ a, 32); \
        c += d; \
        b = TURNED(b ^ c, 24); \
        a += b + (y); \
        d = TURNED(d ^ a, 16); \
        c += d; \
        b = TURNED(b ^ c, 63); \
    } while (0)

__attribute__((target("avx2"))) static void digest_lanes(struct waiting keys[LANES])
{
    lanes m[16], v[16], first, second;
    for (int n = 0; n < 16; n++)
        m[n] = (lanes){get64(keys[0].block + 8 * n), get64(keys[1].block + 8 * n), get64(keys[2].block + 8 * n),
                       get64(keys[3].block + 8 * n)};
    for (int n = 0; n < 8; n++) {
        v[n] = (lanes){0} + initial[n];
        v[n + 8] = v[n];
    }
    v[0] ^= PARAMETERS;
    first = v[0];
    second = v[1];
    v[12] ^= (lanes){keys[0].size, keys[1].size, keys[2].size, keys[3].size};
    v[14] = ~v[14];
#if !defined(__clang__)
#pragma GCC unroll 12
#endif
    for (int round = 0; round < ROUNDS; round++) {
        const uint8_t *at = order[round % 10];
        MIX(v[0], v[4], v[8], v[12], m[at[0]], m[at[1]]);
        MIX(v[1], v[5], v[9], v[13], m[at[2]], m[at[3]]);
        MIX(v[2], v[6], v[10], v[14], m[at[4]], m[at[5]]);
        MIX(v[3], v[7], v[11], v[15], m[at[6]], m[at[7]]);
        MIX(v[0], v[5], v[10], v[15], m[at[8]], m[at[9]]);
        MIX(v[1], v[6], v[11], v[12], m[at[10]], m[at[11]]);
        MIX(v[2], v[7], v[8], v[13], m[at[12]], m[at[13]]);
        MIX(v[3], v[4], v[9], v[14], m[at[14]], m[at[15]]);
    }
    first ^= v[0] ^ v[8];
    second ^= v[1] ^ v[9];
    for (int n = 0; n < LANES; n++)
        put64(put64(keys[n].digest, first[n]), second[n]);
}
#endif

static int lanes_here(void)
{
#if defined(HAS_LANES)
    return __builtin_cpu_supports("avx2") != 0;
#else
    return 0;
#endif
}

static void digest_waiting(struct waiting *keys, int count)
{
#if defined(HAS_LANES)
    if (count == LANES) {
        digest_lanes(keys);
        return;
    }
#endif
    for (int n = 0; n < count; n++)
        digest_into(keys[n].digest, keys[n].block, keys[n].size);
}

static PyObject *digest_of_key(PyObject *key)
{
    if (PyBytes_Check(key))
        return digest_of((const uint8_t *)PyBytes_AsString(key), (size_t)PyBytes_Size(key));
    if (PyUnicode_Check(key)) {
        Py_ssize_t size;
        const char *text = PyUnicode_AsUTF8AndSize(key, &size);
        if (text)
            return digest_of((const uint8_t *)text, (size_t)size);
        PyErr_Clear(); /* lone surrogates */
        PyObject *bytes = PyUnicode_AsEncodedString(key, "utf-8", "surrogatepass");
        PyObject *digest = bytes ? digest_of_key(bytes) : NULL;
        Py_XDECREF(bytes);
        return digest;
    }
    Py_buffer view;
    if (PyObject_GetBuffer(key, &view, PyBUF_SIMPLE))
        return NULL;
    PyObject *digest = digest_of(view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return digest;
}

PyObject *py_key_digest(PyObject *module, PyObject *key)
{
    (void)module;
    return digest_of_key(key);
}

PyObject *py_key_digests(PyObject *module, PyObject *keys)
{
    (void)module;
    PyObject *held = PySequence_Tuple(keys), *digests = held ? PyList_New(0) : NULL;
    for (Py_ssize_t n = 0; digests && n < PyTuple_Size(held); n++) {
        PyObject *digest = digest_of_key(PyTuple_GetItem(held, n));
        if (!digest || PyList_Append(digests, digest))
            Py_CLEAR(digests);
        Py_XDECREF(digest);
    }
    Py_XDECREF(held);
    return digests;
}

/* Return the bytes of a key. They belong to the key or to the object in `held`, which the caller must release. */
static const uint8_t *bytes_of_key(PyObject *key, Py_ssize_t *size, PyObject **held)
{
    *held = NULL;
    if (PyBytes_Check(key)) {
        *size = PyBytes_Size(key);
        return (const uint8_t *)PyBytes_AsString(key);
    }
    if (!PyUnicode_Check(key)) {
        PyErr_SetString(PyExc_TypeError, "a key is str or bytes");
        return NULL;
    }
    const char *text = PyUnicode_AsUTF8AndSize(key, size);
    if (!text) { /* lone surrogates */
        PyErr_Clear();
        *held = PyUnicode_AsEncodedString(key, "utf-8", "surrogatepass");
        if (!*held)
            return NULL;
        *size = PyBytes_Size(*held);
        text = PyBytes_AsString(*held);
    }
    return (const uint8_t *)text;
}

PyObject *py_join_digests(PyObject *module, PyObject *keys)
{
    (void)module;
    PyObject *held = PySequence_Tuple(keys);
    if (!held)
        return NULL;
    Py_ssize_t count = PyTuple_Size(held);
    PyObject *joined = count <= PY_SSIZE_T_MAX / DIGEST ? PyBytes_FromStringAndSize(NULL, count * DIGEST) : PyErr_NoMemory();
    uint8_t *at = joined ? (uint8_t *)PyBytes_AsString(joined) : NULL;
    struct waiting waiting[LANES];
    int number = 0, most = lanes_here() ? LANES : 1;
    for (Py_ssize_t n = 0; joined && n < count; n++, at += DIGEST) {
        PyObject *key = PyTuple_GetItem(held, n);
        if (PyByteArray_Check(key)) { /* already a digest */
            if (PyByteArray_Size(key) == DIGEST)
                memcpy(at, PyByteArray_AsString(key), DIGEST);
            else {
                PyErr_SetString(PyExc_ValueError, "a digest has 16 bytes");
                Py_CLEAR(joined);
            }
            continue;
        }
        Py_ssize_t size;
        PyObject *encoded;
        const uint8_t *data = bytes_of_key(key, &size, &encoded);
        if (!data)
            Py_CLEAR(joined);
        else if (size > BLOCK)
            digest_into(at, data, (size_t)size);
        else {
            struct waiting *next = &waiting[number++];
            memset(put_bytes(next->block, data, (size_t)size), 0, (size_t)(BLOCK - size));
            next->size = (size_t)size;
            next->digest = at;
            if (number == most) {
                digest_waiting(waiting, number);
                number = 0;
            }
        }
        Py_XDECREF(encoded);
    }
    if (joined)
        digest_waiting(waiting, number);
    Py_DECREF(held);
    return joined;
}
