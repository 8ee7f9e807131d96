# The C extensions of Python and Node under AddressSanitizer and UndefinedBehaviorSanitizer, driven by the
# tests of their packages. To be sourced by run.sh. Whatever is built is built of copies: what the tree
# has built stays what it is.

watch_extensions() {
    local runtime
    local at=$built/extensions
    needs node 'Node, from nodejs.org'
    [ -x "$root/target/venv/bin/python" ] && [ -d "$root/ffi/node/dist" ] || {
        echo "the packages are not built: make target/venv/installed target/node/built" >&2
        exit 1
    }
    build_instrumented address
    mkdir -p "$at"
    # For Node's build: one word that is a compiler.
    printf '#!/bin/sh\nexec %s -g -fsanitize=address,undefined -fno-sanitize-recover=all -shared-libasan "$@" %s %s\n' \
        "$CLANG" "$here/extension.c" "$link" >"$at/cc"
    chmod +x "$at/cc"
    runtime=$("$CLANG" -print-file-name="libclang_rt.asan-$(uname -m).so")
    # Both interpreters are without instrumentation, and leave their memory to the system when they end.
    local watched=("LD_PRELOAD=$runtime" PYTHONMALLOC=malloc
        ASAN_OPTIONS=detect_leaks=0:alloc_dealloc_mismatch=0:quarantine_size_mb=16)
    # As users call it, and as nobody should; not what looks at the tarball. What a sanitizer says must not
    # be lost with what pytest captures.
    local python=(env -C "$root/ffi/python" "${watched[@]}" "PYTHONPATH=$at/python" PYTHONDONTWRITEBYTECODE=1
        "$root/target/venv/bin/python" -m pytest -q --capture=no -p no:cacheprovider)
    local node=(env -C "$at/node/ffi/node" "${watched[@]}" node scripts/test.mjs)
    local words='AddressSanitizer: heap-buffer-overflow'

    build_for_python SEEDED_OVERFLOW
    build_for_node SEEDED_OVERFLOW
    is_noticed SEEDED_OVERFLOW_PYTHON "$words" "${python[@]}" tests/test_engine_calls.py
    is_noticed SEEDED_OVERFLOW_NODE "$words" "${node[@]}" test/calls.test.mjs
    build_for_python NO_FAULT
    build_for_node NO_FAULT
    passes 'Python' "${python[@]}" "$root"/ffi/python/tests/test_{engine_*,vectors}.py
    passes 'Node' "${node[@]}" $(cd "$root/ffi/node" && ls test/*.test.mjs | grep -v package)
}

# Breaks a copy, where a fault is to be seeded: the text must be there once.
break_if_seeded() {
    local fault=$1 file=$2 guard=$3 broken=$4
    [ "$fault" = NO_FAULT ] && return
    [ "$(grep -cF "$guard" "$file")" = 1 ] || { echo "$file does not have once: $guard" >&2; exit 1; }
    sed -i "s/$guard/$broken/" "$file"
}

build_for_python() {
    local to=$at/python include
    include=$("$root/target/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    rm -rf "$to"
    mkdir -p "$to"
    cp -r "$root/ffi/python/csrc" "$root/ffi/python/src/callgate" "$to"
    rm -f "$to"/callgate/*.so
    break_if_seeded "$1" "$to/csrc/arguments.c" '(size_t)size, key);' '(size_t)size + 64, key);'
    "$at/cc" -std=c11 -O1 -fPIC -shared -fvisibility=hidden -Wl,--exclude-libs,ALL -DPy_LIMITED_API=0x030A0000 \
        -I "$include" -I "$root/include" "$to"/csrc/*.c "$archive" -o "$to/callgate/_engine.abi3.so"
}

build_for_node() {
    local to=$at/node
    rm -rf "$to"
    mkdir -p "$to/ffi/node" "$to/tests"
    cp -r "$root/include" "$root/README.md" "$to"
    cp -r "$root/tests/vectors" "$to/tests"
    cp "$root/ffi/Cargo.toml" "$to/ffi"
    (cd "$root/ffi/node" && tar c --exclude=node_modules --exclude=prebuilds --exclude=source --exclude=build .) |
        tar x -C "$to/ffi/node"
    ln -s "$root/ffi/node/node_modules" "$to/ffi/node/node_modules"
    break_if_seeded "$1" "$to/ffi/node/csrc/calls.c" 'domain, bytes, size, ' 'domain, bytes, size + 64, '
    (cd "$to/ffi/node" && CC=$at/cc CALLGATE_LIB_DIR=$(dirname "$archive") node scripts/build.mjs >/dev/null)
}
