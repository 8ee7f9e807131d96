/* Key: the digest of an identity, made once and used for many calls. */
#include "engine.h"

PyObject *key_new(Core *core, PyObject *identity, uint32_t domain) {
    callgate_key digest;
    if (!PyUnicode_Check(identity) && !PyBytes_Check(identity)) {
        raise_type("identity", "a str or bytes", identity);
        return NULL;
    }
    if (argument_identity(core, identity, domain, "identity", &digest) < 0) return NULL;
    KeyObject *key = PyObject_New(KeyObject, core->state->key_type);
    if (key == NULL) return NULL;
    Py_INCREF(core);
    key->core = core;
    key->key = digest;
    key->domain = domain;
    return (PyObject *)key;
}

static const KeyObject *key_of(PyObject *self) {
    return (const KeyObject *)self;
}

static void key_dealloc(PyObject *self) {
    Py_DECREF(key_of(self)->core);
    object_free(self);
}

static PyObject *key_repr(PyObject *object) {
    const KeyObject *self = key_of(object);
    /* Eight digits tell keys apart in a log, and tell nothing of the identity. */
    const char *domain = self->domain == CALLGATE_DOMAIN_CALLER ? "caller" : "tool";
    char digits[9];
    PyOS_snprintf(digits, sizeof digits, "%08lx", (unsigned long)(self->key.lo & 0xffffffff));
    return PyUnicode_FromFormat("<callgate.Key of a %s, %s>", domain, digits);
}

static Py_hash_t key_hash(PyObject *self) {
    Py_hash_t hash = (Py_hash_t)key_of(self)->key.lo;
    return hash == -1 ? -2 : hash;
}

static PyObject *key_compare(PyObject *object, PyObject *other, int operation) {
    if (!Py_IS_TYPE(other, Py_TYPE(object)) || (operation != Py_EQ && operation != Py_NE)) {
        return new_ref(Py_NotImplemented);
    }
    const KeyObject *self = key_of(object), *key = key_of(other);
    int is_equal = self->core == key->core && self->domain == key->domain &&
                   self->key.lo == key->key.lo && self->key.hi == key->key.hi;
    return PyBool_FromLong(is_equal == (operation == Py_EQ));
}

static PyObject *key_domain(PyObject *object, void *closure) {
    const KeyObject *self = key_of(object);
    (void)closure;
    return new_ref(self->core->state->domains[self->domain - CALLGATE_DOMAIN_CALLER]);
}

static PyGetSetDef key_getset[] = {
    {"domain", key_domain, NULL, "'caller' or 'tool'.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef key_methods[] = {
    {"__reduce__", refuse_to_pickle, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(key_doc,
             "A prepared identity, made by Gate.key(): saves hashing it for every call.\n\n"
             "It is a keyed digest: the identity can't be read from it. It serves the gate that\n"
             "made it, in the domain it was made for. Equal identities have equal keys.");

static PyType_Slot key_slots[] = {
    {Py_tp_doc, (void *)key_doc},
    {Py_tp_dealloc, key_dealloc},
    {Py_tp_repr, key_repr},
    {Py_tp_hash, key_hash},
    {Py_tp_richcompare, key_compare},
    {Py_tp_getset, key_getset},
    {Py_tp_methods, key_methods},
    {0, NULL},
};

PyType_Spec key_spec = {
    .name = "callgate.Key",
    .basicsize = sizeof(KeyObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = key_slots,
};
