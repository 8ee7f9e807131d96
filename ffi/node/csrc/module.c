/* The addon: its functions, and the check that header and library agree. */
#include "engine.h"

#include <stdio.h>

/* errorText(status) -> [field or null, sentence]. */
static napi_value module_error_text(napi_env env, napi_callback_info info) {
    napi_value argument;
    size_t count = 1;
    int32_t status = 0;
    if (napi_get_cb_info(env, info, &count, &argument, NULL, NULL) != napi_ok) return NULL;
    if (count != 1 || napi_get_value_int32(env, argument, &status) != napi_ok) {
        return misused(env, "errorText: bad arguments");
    }
    return fault_of(env, status, CALLGATE_NO_LIMIT, CALLGATE_NO_LIMIT);
}

static int function_add(napi_env env, napi_value exports, const char *name, napi_callback callback) {
    napi_value function;
    if (napi_create_function(env, name, NAPI_AUTO_LENGTH, callback, NULL, &function) != napi_ok) {
        return -1;
    }
    return napi_set_named_property(env, exports, name, function) == napi_ok ? 0 : -1;
}

/* A version as people write it. */
static const char *version_text(char text[16], uint32_t number) {
    snprintf(text, 16, "%u.%u.%u", (unsigned)(number >> 16 & 255), (unsigned)(number >> 8 & 255),
             (unsigned)(number & 255));
    return text;
}

static int facts_add(napi_env env, napi_value exports) {
    char version[16];
    napi_value is_lock_free;
    if (napi_get_boolean(env, callgate_is_lock_free() != 0, &is_lock_free) != napi_ok ||
        napi_set_named_property(env, exports, "isLockFree", is_lock_free) != napi_ok) {
        return -1;
    }
    return napi_set_named_property(env, exports, "version", string_of(env, version_text(version, CALLGATE_VERSION))) == napi_ok ? 0
                                                                                              : -1;
}

NAPI_MODULE_INIT() {
    if (callgate_version() != CALLGATE_VERSION) {
        char text[128], built[16], linked[16];
        snprintf(text, sizeof text,
                 "callgate.node was built for version %s of libcallgate, but linked with %s",
                 version_text(built, CALLGATE_VERSION), version_text(linked, callgate_version()));
        napi_throw_error(env, NULL, text);
        return NULL;
    }
    if (function_add(env, exports, "open", module_open) < 0 ||
        function_add(env, exports, "attach", module_attach) < 0 ||
        function_add(env, exports, "checkLimit", module_check_limit) < 0 ||
        function_add(env, exports, "errorText", module_error_text) < 0 || facts_add(env, exports) < 0) {
        return NULL;
    }
    return exports;
}
