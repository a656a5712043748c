/* The short ways of `run.update`, `run.updater` and `run.envs`, compiled: what the functions that `written` and
 * `columns` write do, byte for byte, in a third to a quarter of the time.
 *
 * Owns nothing: names, sizes, tags and where to turn with everything unusual are given by Python.
 *
 * Rules: nothing is refused here; what is not exactly expected goes to `other` as it came. A record is written
 * while this thread holds the interpreter's lock and runs no Python, so an unused token need not be taken: nobody
 * can be in between. The ring's memory is asked for at each call, so it cannot be written to once it is closed.
 * Must not know the catalogue, forms, or what a full ring means.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#if defined(Py_GIL_DISABLED) || defined(PYPY_VERSION) || defined(_WIN32)
#error "written for CPython with its lock, on POSIX; elsewhere Python does the same"
#endif
#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "a ring is little-endian; elsewhere Python does the same"
#endif

#include "checksums.h"
#include "copying.h"

/* As in `compiled.py`: another one is added there and here when what they tell each other changes. */
#define EDITION 3

#define MAX_NAMES 64
#define HEADER_BYTES 4096
#define HEAD_BYTES 40
#define NUMBER_BYTES 9
#define MAX_INDEX ((int64_t)1 << 62)

/* What a number stands for in a call, besides the place of a name. */
enum { INDEX = MAX_NAMES, ENV_ID, LANE };

/* What both kinds of functions know; Python objects first, so that they can be visited in one loop. */
enum { NAMES, RING, TOKEN, ASIDE, VIEW, WAITING, OTHER, FLUSH, PUT, KWNAMES, STRANGE, LATEST, ARRAY, REFS };

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *refs[REFS];
    Py_ssize_t count;
    /* Where in a RingWriter and in a Latest their slots are. */
    Py_ssize_t off, limit, word, latest;
    /* Bytes of a record, in the ring and without what only fills it up; what it adds to the mark. */
    uint64_t size, length, step;
    Py_ssize_t published, released, counter;
    int64_t prime;
    /* What a chute says of a full ring, and where updates are folded meanwhile; held for as long as this lives. */
    Py_buffer stuck, tally;
    int64_t tag, indexed;
    Py_ssize_t rows;
    uint8_t order[MAX_NAMES + 3];
    char formats[MAX_NAMES];
} Shortcut;

static int64_t now(void) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

static inline PyObject **slot(PyObject *owner, Py_ssize_t offset) { return (PyObject **)((char *)owner + offset); }

/* Put `value`, whose reference is given away, where a slot's descriptor says. */
static inline void keep(PyObject *owner, Py_ssize_t offset, PyObject *value) {
    PyObject **place = slot(owner, offset), *before = *place;
    *place = value;
    Py_XDECREF(before);
}

/* A whole number in a slot; -1 where there is none, which no slot of a ring holds. */
static inline int64_t whole(PyObject *owner, Py_ssize_t offset) {
    PyObject *found = *slot(owner, offset);
    if (found == NULL || !PyLong_CheckExact(found)) return -1;
    int64_t value = PyLong_AsLongLong(found);
    if (value == -1 && PyErr_Occurred()) PyErr_Clear();
    return value;
}

static inline Py_ssize_t size_of(PyObject *sized) {
    Py_ssize_t found = sized == Py_None ? 0 : PyObject_Size(sized);
    if (found < 0) PyErr_Clear();
    return found;
}

/* What one name of a call stands for, -1 where it is none of ours. Names are nearly always the same objects. */
static int place_of(Shortcut *self, PyObject *name, Py_ssize_t expected) {
    PyObject *names = self->refs[NAMES];
    if (expected < self->count && PyTuple_GET_ITEM(names, expected) == name) return (int)expected;
    for (Py_ssize_t i = 0; i < self->count; i++)
        if (PyTuple_GET_ITEM(names, i) == name) return (int)i;
    int is_columns = self->refs[ARRAY] != NULL;
    if (PyUnicode_CompareWithASCIIString(name, is_columns ? "step" : "update") == 0) return INDEX;
    if (is_columns && PyUnicode_CompareWithASCIIString(name, "env_id") == 0) return ENV_ID;
    if (is_columns && PyUnicode_CompareWithASCIIString(name, "lane") == 0) return LANE;
    for (Py_ssize_t i = 0; i < self->count; i++)
        if (PyUnicode_Compare(PyTuple_GET_ITEM(names, i), name) == 0) return (int)i;
    return -1;
}

/* Learn what the names of a call stand for; whether all are ours. A call from one place has one tuple of them. */
static int learn(Shortcut *self, PyObject *kwnames) {
    Py_ssize_t given = PyTuple_GET_SIZE(kwnames);
    uint8_t order[MAX_NAMES + 3];
    if (given > MAX_NAMES + 3) return 0;
    for (Py_ssize_t i = 0; i < given; i++) {
        int place = place_of(self, PyTuple_GET_ITEM(kwnames, i), i);
        if (place < 0) return 0;
        order[i] = (uint8_t)place;
    }
    memcpy(self->order, order, (size_t)given);
    Py_XSETREF(self->refs[KWNAMES], Py_NewRef(kwnames));
    return 1;
}

static inline int is_known(Shortcut *self, PyObject *kwnames) {
    if (kwnames == self->refs[KWNAMES]) return 1;
    if (kwnames == self->refs[STRANGE]) return 0;
    if (learn(self, kwnames)) return 1;
    Py_XSETREF(self->refs[STRANGE], Py_NewRef(kwnames));
    return 0;
}

static void write_head(uint8_t *at, Shortcut *self, uint32_t sum, uint64_t word, int64_t moment, int64_t index,
                       int64_t tag) {
    uint32_t length = (uint32_t)self->length;
    memcpy(at, &length, 4);
    memcpy(at + 4, &sum, 4);
    memcpy(at + 8, &word, 8);
    memcpy(at + 16, &moment, 8);
    memcpy(at + 24, &index, 8);
    memcpy(at + 32, &tag, 8);
}

/* Where a record may be written now: both are made beforehand, so that nothing can fail once it is published. */
typedef struct {
    Py_buffer memory;
    uint8_t *at;
    uint64_t word;
    PyObject *next_word, *next_off;
} Place;

enum { FAILED = -1, NO_ROOM = 0, FREE = 1 };

static int find_place(Shortcut *self, Place *place) {
    PyObject *ring = self->refs[RING];
    int64_t off = whole(ring, self->off), limit = whole(ring, self->limit), word = whole(ring, self->word);
    if (off < 0 || word < 0 || PyList_GET_SIZE(self->refs[TOKEN]) == 0) return FAILED;
    if (off + (int64_t)self->size > limit) return NO_ROOM;
    place->word = (uint64_t)word + self->step;
    place->next_word = PyLong_FromUnsignedLongLong(place->word);
    place->next_off = PyLong_FromLongLong(off + (int64_t)self->size);
    if (place->next_word == NULL || place->next_off == NULL ||
        PyObject_GetBuffer(self->refs[VIEW], &place->memory, PyBUF_WRITABLE) < 0) {
        Py_XDECREF(place->next_word);
        Py_XDECREF(place->next_off);
        PyErr_Clear();
        return FAILED;
    }
    if (limit > place->memory.len || off < HEADER_BYTES) {
        PyBuffer_Release(&place->memory);
        Py_DECREF(place->next_word);
        Py_DECREF(place->next_off);
        return FAILED;
    }
    place->at = (uint8_t *)place->memory.buf + off;
    return FREE;
}

/* Let the reader see the record. */
static void publish(Shortcut *self, Place *place) {
    uint64_t *words = place->memory.buf;
    __atomic_store_n(words + self->published, place->word, __ATOMIC_RELEASE);
    keep(self->refs[RING], self->word, place->next_word);
    keep(self->refs[RING], self->off, place->next_off);
    PyBuffer_Release(&place->memory);
}

/* What follows a record that was written: whoever waited for this thread has its turn. */
static PyObject *done(Shortcut *self) {
    if (size_of(self->refs[ASIDE]) == 0) Py_RETURN_NONE;
    PyObject *result = PyObject_CallNoArgs(self->refs[FLUSH]);
    if (result == NULL) return NULL;
    Py_DECREF(result);
    Py_RETURN_NONE;
}

/* Whether the ring has no room for sure; then one more is counted in it, of what does not go into it. */
static int count_refused(Shortcut *self) {
    const uint64_t *stuck = self->stuck.buf;
    Py_buffer memory;
    if (PyObject_GetBuffer(self->refs[VIEW], &memory, PyBUF_WRITABLE) < 0) {
        PyErr_Clear();
        return 0;
    }
    uint64_t *words = memory.buf;
    int is_refused = words[self->released] == stuck[0] && self->size >= stuck[1];
    if (is_refused) words[self->counter]++;
    PyBuffer_Release(&memory);
    return is_refused;
}

/* ---- numbers of an update ---- */

static inline uint8_t *put_big(uint8_t *at, uint8_t tag, uint64_t value) {
    value = __builtin_bswap64(value);
    *at = tag;
    memcpy(at + 1, &value, 8);
    return at + NUMBER_BYTES;
}

static inline uint8_t *put_short(uint8_t *at, uint8_t tag, uint64_t value, int bytes) {
    *at++ = tag;
    while (bytes--) *at++ = (uint8_t)(value >> (8 * bytes));
    return at;
}

/* An index as msgpack has it, in as few bytes as it can. */
static uint8_t *put_index(uint8_t *at, int has_index, int64_t index) {
    if (!has_index) return put_short(at, 0xC0, 0, 0);
    uint64_t bits = (uint64_t)index;
    if (index >= 0) {
        if (index < 0x80) return put_short(at, (uint8_t)index, 0, 0);
        if (index <= 0xFF) return put_short(at, 0xCC, bits, 1);
        if (index <= 0xFFFF) return put_short(at, 0xCD, bits, 2);
        if (index <= 0xFFFFFFFF) return put_short(at, 0xCE, bits, 4);
        return put_short(at, 0xCF, bits, 8);
    }
    if (index >= -0x20) return put_short(at, (uint8_t)index, 0, 0);
    if (index >= -0x80) return put_short(at, 0xD0, bits, 1);
    if (index >= -0x8000) return put_short(at, 0xD1, bits, 2);
    if (index >= -(int64_t)0x80000000) return put_short(at, 0xD2, bits, 4);
    return put_short(at, 0xD3, bits, 8);
}

static void write_numbers(Shortcut *self, Place *place, PyObject *const *numbers, int64_t moment, int has_index,
                          int64_t index) {
    uint8_t *first = place->at + HEAD_BYTES, *at = first;
    Py_ssize_t items = self->count + 2;
    at = items < 16 ? put_short(at, (uint8_t)(0x90 | items), 0, 0) : put_short(at, 0xDC, (uint64_t)items, 2);
    for (Py_ssize_t i = 0; i < self->count; i++) {
        double value = PyFloat_AS_DOUBLE(numbers[i]);
        uint64_t bits;
        memcpy(&bits, &value, 8);
        at = put_big(at, 0xCB, bits);
    }
    at = put_big(at, 0xCF, (uint64_t)moment);
    uint8_t *end = put_index(at, has_index, index);
    memset(end, 0, (size_t)(at + NUMBER_BYTES - end));
    uint32_t sum = crc(first, (size_t)(end - first), (uint32_t)(self->tag % self->prime));
    write_head(place->at, self, sum, place->word, 0, 0, self->tag);
}

/* How a `Tally` lies in memory: words, then the numbers of each name. */
enum { IS_OPEN, COUNT, MOMENT, INDEX_OF, HAS_INDEX, UPDATES, FIRST_INDEX, HAS_FIRST, TALLY_WORDS };
enum { LAST, LOW, HIGH, WARNINGS, CRITICALS, NANS, INFS, WARN_LOW, WARN_HIGH, CRIT_LOW, CRIT_HIGH, TALLY_WIDTH };

static void add_number(double *to, double value) {
    to[LAST] = value;
    if (isnan(value)) {
        to[NANS]++;
    } else if (isinf(value)) {
        to[INFS]++;
    } else {
        if (value < to[LOW]) to[LOW] = value;
        if (value > to[HIGH]) to[HIGH] = value;
        if (value <= to[CRIT_LOW] || value >= to[CRIT_HIGH])
            to[CRITICALS]++;
        else if (value <= to[WARN_LOW] || value >= to[WARN_HIGH])
            to[WARNINGS]++;
    }
}

/* Fold an update where others of a full ring are folded; whether it was. */
static int fold_in_place(Shortcut *self, PyObject *const *numbers, int64_t moment, int has_index, int64_t index) {
    int64_t *words = self->tally.buf;
    if (!words[IS_OPEN] || size_of(self->refs[ASIDE]) != 0 || !count_refused(self)) return 0;
    double *to = (double *)(words + TALLY_WORDS);
    for (Py_ssize_t i = 0; i < self->count; i++, to += TALLY_WIDTH) add_number(to, PyFloat_AS_DOUBLE(numbers[i]));
    if (words[COUNT] == 0) {
        words[FIRST_INDEX] = index;
        words[HAS_FIRST] = has_index;
    }
    /* Calls of one number that follow one another are one update. */
    if (words[COUNT] == 0 || !has_index || !words[HAS_INDEX] || words[INDEX_OF] != index) words[UPDATES]++;
    words[COUNT]++;
    words[MOMENT] = moment;
    words[INDEX_OF] = index;
    words[HAS_INDEX] = has_index;
    return 1;
}

/* For a ring that is full or in other hands: the record goes the long way. */
static PyObject *update_full(Shortcut *self, PyObject *const *numbers, int64_t moment, PyObject *index) {
    PyObject *told = PyTuple_New(self->count), *at = PyLong_FromLongLong(moment), *result = NULL;
    if (told != NULL && at != NULL) {
        for (Py_ssize_t i = 0; i < self->count; i++) PyTuple_SET_ITEM(told, i, Py_NewRef(numbers[i]));
        PyObject *arguments[] = {told, at, index};
        result = PyObject_Vectorcall(self->refs[PUT], arguments, 3, NULL);
    }
    Py_XDECREF(told);
    Py_XDECREF(at);
    return result;
}

static PyObject *call_update(PyObject *callable, PyObject *const *given, size_t flags, PyObject *kwnames) {
    Shortcut *self = (Shortcut *)callable;
    Py_ssize_t by_place = PyVectorcall_NARGS(flags), by_name = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
    PyObject *sorted[MAX_NAMES], *const *numbers = given, *index = Py_None;
    if (self->refs[OTHER] == NULL) Py_RETURN_NONE; /* called by a finaliser, when the run is being collected */
    if (self->refs[WAITING] != NULL) {
        if (by_place != self->count || by_name > 1 || size_of(self->refs[WAITING]) != 0) goto other;
        if (by_name) {
            if (!is_known(self, kwnames) || self->order[0] != INDEX) goto other;
            index = given[by_place];
        }
    } else {
        Py_ssize_t found = 0;
        if (by_place != 0 || by_name < self->count || by_name > self->count + 1 || !is_known(self, kwnames))
            goto other;
        for (Py_ssize_t i = 0; i < by_name; i++) {
            if (self->order[i] == INDEX) {
                index = given[i];
            } else {
                sorted[self->order[i]] = given[i];
                found++;
            }
        }
        if (found != self->count) goto other;
        numbers = sorted;
    }
    for (Py_ssize_t i = 0; i < self->count; i++)
        if (!PyFloat_CheckExact(numbers[i])) goto other;
    int64_t said = 0;
    if (index != Py_None) {
        int overflow = 0;
        if (!PyLong_CheckExact(index)) goto other;
        said = PyLong_AsLongLongAndOverflow(index, &overflow);
        if (overflow) goto other;
    }
    int64_t moment = now();
    Place place;
    int found = find_place(self, &place);
    keep(self->refs[LATEST], self->latest, Py_NewRef(index));
    if (found == NO_ROOM && fold_in_place(self, numbers, moment, index != Py_None, said)) Py_RETURN_NONE;
    if (found != FREE) return update_full(self, numbers, moment, index);
    write_numbers(self, &place, numbers, moment, index != Py_None, said);
    publish(self, &place);
    return done(self);
other:
    return PyObject_Vectorcall(self->refs[OTHER], given, flags, kwnames);
}

/* ---- columns of envs ---- */

static void release(Py_buffer *columns, Py_ssize_t count) {
    while (count--) PyBuffer_Release(columns + count);
}

/* Whether a column is an array of the expected numbers, also of every so many-th; then its memory is held. */
static int take_column(Shortcut *self, PyObject *column, char format, Py_buffer *taken) {
    if ((PyObject *)Py_TYPE(column) != self->refs[ARRAY]) return 0;
    if (PyObject_GetBuffer(column, taken, PyBUF_STRIDES | PyBUF_FORMAT) < 0) {
        PyErr_Clear();
        return 0;
    }
    int is_expected = taken->ndim == 1 && taken->shape[0] == self->rows && taken->format != NULL &&
                      taken->format[0] == format && taken->format[1] == '\0';
    if (!is_expected) PyBuffer_Release(taken);
    return is_expected;
}

static size_t least(size_t one, ptrdiff_t other) { return other < 0 ? 0 : one < (size_t)other ? one : (size_t)other; }

/* Copy a column to `at`; of a long payload, from `first` to `last`, only the ends are summed and come into caches. */
static uint8_t *copy_column(uint8_t *at, const Py_buffer *column, const uint8_t *first, const uint8_t *last) {
    const uint8_t *from = column->buf;
    size_t bytes = (size_t)column->len;
    if (column->strides[0] != column->itemsize) {
        for (Py_ssize_t row = 0; row < column->shape[0]; row++)
            memcpy(at + row * column->itemsize, from + row * column->strides[0], (size_t)column->itemsize);
    } else if (last - first <= WHOLE_BYTES) {
        memcpy(at, from, bytes);
    } else {
        size_t head = least(bytes, first + END_BYTES - at), rest = bytes - head;
        size_t tail = least(rest, at + bytes - (last - END_BYTES));
        memcpy(at, from, head);
        copy_past(at + head, from + head, rest - tail);
        memcpy(at + bytes - tail, from + bytes - tail, tail);
    }
    return at + bytes;
}

static void write_columns(Shortcut *self, Place *place, const Py_buffer *columns, int64_t moment, int64_t index,
                          int64_t tag) {
    uint8_t *first = place->at + HEAD_BYTES, *at = first;
    const uint8_t *last = place->at + self->length;
    for (Py_ssize_t i = 0; i < self->count; i++) at = copy_column(at, columns + i, first, last);
    if (last - first > WHOLE_BYTES) settle();
    int64_t seed = (moment + index + tag) % self->prime;
    uint32_t sum = sum_any(first, self->length - HEAD_BYTES, (uint32_t)(seed < 0 ? seed + self->prime : seed));
    write_head(place->at, self, sum, place->word, moment, index, tag);
}

static PyObject *call_envs(PyObject *callable, PyObject *const *given, size_t flags, PyObject *kwnames) {
    Shortcut *self = (Shortcut *)callable;
    Py_ssize_t by_name = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames), taken = 0;
    PyObject *sorted[MAX_NAMES], *step = Py_None;
    Py_buffer columns[MAX_NAMES];
    if (self->refs[OTHER] == NULL) Py_RETURN_NONE; /* called by a finaliser, when the run is being collected */
    if (PyVectorcall_NARGS(flags) != 0 || by_name < self->count || !is_known(self, kwnames)) goto other;
    if (size_of(self->refs[WAITING]) != 0) goto other;
    Py_ssize_t named = 0;
    for (Py_ssize_t i = 0; i < by_name; i++) {
        uint8_t order = self->order[i];
        if (order < INDEX) {
            sorted[order] = given[i];
            named++;
        } else if (order == INDEX) {
            step = given[i];
        } else if (given[i] != Py_None) {
            goto other;
        }
    }
    if (named != self->count) goto other;
    int64_t index = 0, tag = self->tag;
    if (step != Py_None) {
        int overflow = 0;
        if (!PyLong_CheckExact(step)) goto other;
        index = PyLong_AsLongLongAndOverflow(step, &overflow);
        if (overflow || index <= -MAX_INDEX || index >= MAX_INDEX) goto other;
        tag = self->indexed;
    }
    int64_t moment = now();
    uint64_t length = HEAD_BYTES;
    while (taken < self->count && take_column(self, sorted[taken], self->formats[taken], columns + taken))
        length += (uint64_t)columns[taken++].len;
    if (taken < self->count || length != self->length) goto other;
    Place place;
    int found = find_place(self, &place);
    if (found == FREE) {
        write_columns(self, &place, columns, moment, index, tag);
        publish(self, &place);
        release(columns, taken);
        return done(self);
    }
    if (found == NO_ROOM && size_of(self->refs[ASIDE]) == 0 && count_refused(self)) {
        release(columns, taken);
        Py_RETURN_NONE;
    }
other:
    release(columns, taken);
    return PyObject_Vectorcall(self->refs[OTHER], given, flags, kwnames);
}

/* ---- the type ---- */

static int visit_refs(PyObject *object, visitproc visit, void *arg) {
    Shortcut *self = (Shortcut *)object;
    for (int i = 0; i < REFS; i++) Py_VISIT(self->refs[i]);
    Py_VISIT(Py_TYPE(object));
    return 0;
}

static int clear_refs(PyObject *object) {
    Shortcut *self = (Shortcut *)object;
    for (int i = 0; i < REFS; i++) Py_CLEAR(self->refs[i]);
    return 0;
}

static void end(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    clear_refs(object);
    PyBuffer_Release(&((Shortcut *)object)->stuck);
    PyBuffer_Release(&((Shortcut *)object)->tally);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Shortcut, call), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Writes one kind of record into a ring; what it was not made for goes to another."},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, visit_refs},
    {Py_tp_clear, clear_refs},
    {Py_tp_dealloc, end},
    {Py_tp_members, members},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "overwatch.sdk.rings._compiled.Shortcut",
    .basicsize = sizeof(Shortcut),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

/* Where an object has a slot of this name, -1 with an exception where it has none. */
static Py_ssize_t slot_offset(PyObject *owner, const char *name) {
    PyObject *found = PyObject_GetAttrString((PyObject *)Py_TYPE(owner), name);
    if (found == NULL) return -1;
    PyMemberDescrObject *member = (PyMemberDescrObject *)found;
    Py_ssize_t offset = -1;
    if (Py_IS_TYPE(found, &PyMemberDescr_Type) && member->d_member->type == T_OBJECT_EX &&
        PyObject_TypeCheck(owner, PyDescr_TYPE(found)))
        offset = member->d_member->offset;
    else
        PyErr_Format(PyExc_TypeError, "%s of a %s is no slot", name, Py_TYPE(owner)->tp_name);
    Py_DECREF(found);
    return offset;
}

static int is_word(Py_ssize_t place) { return place >= 0 && place < HEADER_BYTES / 8; }

/* Hold what Python has lent, which must have room for so many bytes. */
static int borrow(PyObject *lent, Py_buffer *to, uint64_t bytes) {
    if (PyObject_GetBuffer(lent, to, PyBUF_WRITABLE) < 0) return 0;
    if ((uint64_t)to->len >= bytes) return 1;
    PyBuffer_Release(to);
    PyErr_Format(PyExc_ValueError, "%zd bytes are too few", to->len);
    return 0;
}

/* Whether what Python has said may be written by; it says the sizes, so that only one side computes them. */
static int is_sound(Shortcut *self) {
    PyObject *names = self->refs[NAMES];
    uint64_t items = (uint64_t)self->count + 2, numbers = HEAD_BYTES + (items < 16 ? 1 : 3) + NUMBER_BYTES * items;
    if (self->prime < 1 || self->size < self->length || self->length < HEAD_BYTES || self->size > UINT32_MAX ||
        (self->call == call_update && self->length != numbers) || !is_word(self->published) ||
        !is_word(self->released) || !is_word(self->counter)) {
        PyErr_SetString(PyExc_ValueError, "sizes that no record has");
        return 0;
    }
    if (self->count < 1 || self->count > MAX_NAMES) {
        PyErr_Format(PyExc_ValueError, "%zd names are not one to %d", self->count, MAX_NAMES);
        return 0;
    }
    for (Py_ssize_t i = 0; i < self->count; i++) {
        if (!PyUnicode_CheckExact(PyTuple_GET_ITEM(names, i))) {
            PyErr_SetString(PyExc_TypeError, "names are text");
            return 0;
        }
    }
    if (!PyList_CheckExact(self->refs[TOKEN])) {
        PyErr_SetString(PyExc_TypeError, "a token lies in a list");
        return 0;
    }
    self->off = slot_offset(self->refs[RING], "off");
    self->limit = slot_offset(self->refs[RING], "limit");
    self->word = slot_offset(self->refs[RING], "word");
    return self->off >= 0 && self->limit >= 0 && self->word >= 0;
}

static Shortcut *made(PyObject *module, vectorcallfunc call) {
    PyTypeObject *type = PyModule_GetState(module) ? *(PyTypeObject **)PyModule_GetState(module) : NULL;
    Shortcut *self = (Shortcut *)type->tp_alloc(type, 0);
    if (self != NULL) self->call = call;
    return self;
}

static PyObject *held(Shortcut *self, PyObject *const *refs, PyObject *stuck, PyObject *tally) {
    uint64_t folded = 8 * (TALLY_WORDS + TALLY_WIDTH * (uint64_t)PyTuple_GET_SIZE(refs[NAMES]));
    for (int i = 0; i < REFS; i++) self->refs[i] = Py_XNewRef(refs[i]);
    self->count = PyTuple_GET_SIZE(refs[NAMES]);
    if (is_sound(self) && borrow(stuck, &self->stuck, 16) &&
        (tally == NULL || borrow(tally, &self->tally, folded)))
        return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

/* What both kinds are told first, and where it goes. */
#define COMMON_FORMAT "$O!OO!OOOOKKKnnnL"
#define COMMON_NAMES                                                                                             \
    "names", "ring", "token", "aside", "view", "flush", "stuck", "length", "size", "step", "published",          \
        "released", "counter", "prime"
#define COMMON_PLACES                                                                                            \
    &PyTuple_Type, &refs[NAMES], &refs[RING], &PyList_Type, &refs[TOKEN], &refs[ASIDE], &refs[VIEW],             \
        &refs[FLUSH], &stuck, &self->length, &self->size, &self->step, &self->published, &self->released,        \
        &self->counter, &self->prime

PyDoc_STRVAR(update_doc, "A function that writes updates of these names.");

static PyObject *update(PyObject *module, PyObject *args, PyObject *kwargs) {
    static char *known[] = {COMMON_NAMES, "put", "latest", "waiting", "other", "tally", "tag", NULL};
    PyObject *refs[REFS] = {NULL}, *stuck, *tally;
    Shortcut *self = made(module, call_update);
    if (self == NULL) return NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, COMMON_FORMAT "OOOOOL", known, COMMON_PLACES, &refs[PUT],
                                     &refs[LATEST], &refs[WAITING], &refs[OTHER], &tally, &self->tag) ||
        (self->latest = slot_offset(refs[LATEST], "update")) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    if (refs[WAITING] == Py_None) refs[WAITING] = NULL;
    return held(self, refs, stuck, tally);
}

PyDoc_STRVAR(envs_doc, "A function that writes columns of these names, formats and length.");

static PyObject *envs(PyObject *module, PyObject *args, PyObject *kwargs) {
    static char *known[] = {COMMON_NAMES, "array", "waiting", "other", "plain", "indexed", "rows", "formats", NULL};
    PyObject *refs[REFS] = {NULL}, *stuck;
    const char *formats;
    Py_ssize_t letters;
    Shortcut *self = made(module, call_envs);
    if (self == NULL) return NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, COMMON_FORMAT "OOOLLns#", known, COMMON_PLACES, &refs[ARRAY],
                                     &refs[WAITING], &refs[OTHER], &self->tag, &self->indexed, &self->rows,
                                     &formats, &letters)) {
        Py_DECREF(self);
        return NULL;
    }
    if (letters != PyTuple_GET_SIZE(refs[NAMES]) || letters > MAX_NAMES) {
        PyErr_Format(PyExc_ValueError, "%zd formats for %zd names", letters, PyTuple_GET_SIZE(refs[NAMES]));
        Py_DECREF(self);
        return NULL;
    }
    memcpy(self->formats, formats, (size_t)letters);
    return held(self, refs, stuck, NULL);
}

PyDoc_STRVAR(checksum_doc, "What `layout.checksum` says of a payload.");

static PyObject *checksum(PyObject *module, PyObject *args) {
    Py_buffer payload;
    unsigned int start;
    if (!PyArg_ParseTuple(args, "y*I", &payload, &start)) return NULL;
    uint32_t sum = sum_any(payload.buf, (uint64_t)payload.len, start);
    PyBuffer_Release(&payload);
    return PyLong_FromUnsignedLong(sum);
}

static PyMethodDef functions[] = {
    {"update", (PyCFunction)(void (*)(void))update, METH_VARARGS | METH_KEYWORDS, update_doc},
    {"envs", (PyCFunction)(void (*)(void))envs, METH_VARARGS | METH_KEYWORDS, envs_doc},
    {"checksum", checksum, METH_VARARGS, checksum_doc},
    {NULL, NULL, 0, NULL},
};

static int begin(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    if (type == NULL) return -1;
    *(PyObject **)PyModule_GetState(module) = type;
    prepare_sums();
    return PyModule_AddIntConstant(module, "EDITION", EDITION);
}

static int visit_state(PyObject *module, visitproc visit, void *arg) {
    Py_VISIT(*(PyObject **)PyModule_GetState(module));
    return 0;
}

static int clear_state(PyObject *module) {
    Py_CLEAR(*(PyObject **)PyModule_GetState(module));
    return 0;
}

static PyModuleDef_Slot parts[] = {{Py_mod_exec, begin}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_compiled",
    .m_doc = "The short ways into a ring, compiled; `written` and `columns` do the same in Python.",
    .m_size = sizeof(PyObject *),
    .m_methods = functions,
    .m_slots = parts,
    .m_traverse = visit_state,
    .m_clear = clear_state,
};

PyMODINIT_FUNC PyInit__compiled(void) { return PyModuleDef_Init(&definition); }
