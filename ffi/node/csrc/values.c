/* Values of JavaScript, and back. */
#include "engine.h"

/* Only src/ calls these functions; what it gets wrong is a TypeError. */
napi_value misused(napi_env env, const char *sentence) {
    napi_throw_type_error(env, NULL, sentence);
    return NULL;
}

napi_value string_of(napi_env env, const char *text) {
    napi_value value = NULL;
    if (text == NULL) {
        napi_get_null(env, &value);
    } else {
        napi_create_string_utf8(env, text, NAPI_AUTO_LENGTH, &value);
    }
    return value;
}

napi_value number_of(napi_env env, double number) {
    napi_value value = NULL;
    napi_create_double(env, number, &value);
    return value;
}

/* [field or null, sentence, index of the limit or -1, index of the policy or -1]. */
napi_value fault_of(napi_env env, callgate_status status, uint32_t limit, uint32_t policy) {
    napi_value fault = NULL;
    napi_value items[4] = {
        string_of(env, callgate_error_field(status)),
        string_of(env, callgate_strerror(status)),
        number_of(env, limit == CALLGATE_NO_LIMIT ? -1 : (double)limit),
        number_of(env, policy == CALLGATE_NO_LIMIT ? -1 : (double)policy),
    };
    if (napi_create_array_with_length(env, 4, &fault) != napi_ok) return NULL;
    for (uint32_t n = 0; n < 4; n++) napi_set_element(env, fault, n, items[n]);
    return fault;
}

int array_length(napi_env env, napi_value array, uint32_t *length) {
    bool is_array = false;
    if (napi_is_array(env, array, &is_array) != napi_ok || !is_array) return -1;
    return napi_get_array_length(env, array, length) == napi_ok ? 0 : -1;
}

/* A string as UTF-8 ended by a NUL, to be freed; NULL where it is none. */
char *text_read(napi_env env, napi_value string) {
    size_t size = 0;
    if (napi_get_value_string_utf8(env, string, NULL, 0, &size) != napi_ok) return NULL;
    char *text = malloc(size + 1);
    if (text == NULL) return NULL;
    if (napi_get_value_string_utf8(env, string, text, size + 1, &size) == napi_ok) return text;
    free(text);
    return NULL;
}

/* The bytes of a Uint8Array. They are good until JavaScript runs again. */
int bytes_read(napi_env env, napi_value bytes, void **data, size_t *size) {
    napi_typedarray_type type;
    bool is_typed_array = false;
    if (napi_is_typedarray(env, bytes, &is_typed_array) != napi_ok || !is_typed_array) return -1;
    if (napi_get_typedarray_info(env, bytes, &type, size, data, NULL, NULL) != napi_ok) return -1;
    return type == napi_uint8_array ? 0 : -1;
}

int word_read(napi_env env, napi_value number, uint32_t *word) {
    return napi_get_value_uint32(env, number, word) == napi_ok ? 0 : -1;
}
