# That a header of one version and a library of another are told apart, by every wrapper, before anything
# else is asked of them. To be sourced by run.sh, whose names it uses.
#
# A pair is a folder with a header and a library, and what a wrapper makes of them.

make_pair() {
    local pair="$work/$1" header=$2 library=$3
    rm -rf "$pair"
    mkdir -p "$pair/include" "$pair/lib"
    cp "$header" "$pair/include/callgate.h"
    cp "$library" "$pair/lib/libcallgate.a"
}

# The library as it is, but for the version that it tells.
later_library() {
    local made=$1
    printf '#include "callgate.h"\nuint32_t callgate_version(void) { return %s; }\n' \
        "$(version_of "$work/later.h")" >"$work/later.c"
    "$CC" -std=c11 -O1 -fPIC -I "$root/include" -c "$work/later.c" -o "$work/later.o"
    objcopy --redefine-sym callgate_version=version_of_its_own "$target/release/libcallgate.a" "$made"
    # Not ar, which has whatever plugin it finds look at Rust's objects.
    gcc-ar rs "$made" "$work/later.o"
}

# The Python package from its own sources.
build_python() {
    local pair=$1
    mkdir -p "$pair/python"
    cp -R "$root/ffi/python/src/callgate" "$pair/python/callgate"
    rm -f "$pair"/python/callgate/*.so
    "$CC" -shared -fPIC -std=c11 -O1 -DPy_LIMITED_API=0x030A0000 -fvisibility=hidden \
        -I "$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("include"))')" \
        -I "$pair/include" "$root"/ffi/python/csrc/*.c "$pair/lib/libcallgate.a" \
        -o "$pair/python/callgate/_engine.abi3.so"
}

ask_python() {
    PYTHONPATH=$1/python PYTHONDONTWRITEBYTECODE=1 "$PYTHON" -c '
try:
    import callgate
    print("loaded", callgate.__version__)
except ImportError as error:
    print("refused:", error)
'
}

# The addon, by its own script, to which the pair looks like a clone.
build_node() {
    local pair=$1
    mkdir -p "$pair/ffi/node"
    touch "$pair/ffi/Cargo.toml"
    cp -R "$root/ffi/node/csrc" "$root/ffi/node/scripts" "$pair/ffi/node"
    # There the headers are where Node came without.
    ln -s "$root/ffi/node/node_modules" "$pair/ffi/node/node_modules"
    CALLGATE_LIB_DIR="$pair/lib" "$NODE" "$pair/ffi/node/scripts/build.mjs" >/dev/null
}

ask_node() {
    "$NODE" -e '
try {
  console.log("loaded", require(process.argv[1]).version);
} catch (error) {
  console.log(error instanceof Error ? "refused:" : "not an Error:", error.message);
}' "$1/ffi/node/build/callgate.node"
}

# A program that makes a gate. The go command looks for changes at what is in the package's own folder
# only, so the header is there.
build_go() {
    local pair=$1 platform
    platform=$("$GO" env GOOS)_$("$GO" env GOARCH)
    cp -R "$root/ffi/go" "$pair/go"
    mkdir -p "$pair/go/lib/$platform"
    cp "$pair/lib/libcallgate.a" "$pair/go/lib/$platform"
    cp "$pair/include/callgate.h" "$pair/go/library.h"
    (cd "$pair/go" && "$GO" build -o "$pair/make_gate" "$here/make_gate.go")
}

ask_go() { "$1/make_gate"; }

# What a wrapper says of two numbers, its header's and its library's.
words_of() {
    local wrapper=$1 in_header in_library
    in_header=$(dotted "$2") in_library=$(dotted "$3")
    case $wrapper in
        python) echo "refused: callgate._engine was built for version $in_header of libcallgate, but linked with $in_library" ;;
        node) echo "refused: callgate.node was built for version $in_header of libcallgate, but linked with $in_library" ;;
        go) echo "refused: callgate: the library is version $in_library, but its header is version $in_header: build the library anew" ;;
    esac
}

wrappers_compare_versions() {
    local now later wrapper pair told words
    now=$(version_of "$header") later=$(version_of "$work/later.h")
    later_library "$work/later.a"
    make_pair same "$header" "$target/release/libcallgate.a"
    make_pair older_library "$work/later.h" "$target/release/libcallgate.a"
    make_pair newer_library "$header" "$work/later.a"
    for wrapper in python node go; do
        for pair in same older_library newer_library; do
            build_$wrapper "$work/$pair"
            told=$(ask_$wrapper "$work/$pair" 2>&1) || fails "$wrapper, $pair: $told"
            case $pair in
                same) words='loaded ' ;;
                older_library) words=$(words_of $wrapper "$later" "$now") ;;
                newer_library) words=$(words_of $wrapper "$now" "$later") ;;
            esac
            [[ $told == "$words"* ]] || fails "$wrapper, $pair: $told"
            echo "abi: $wrapper, $pair: $told"
        done
    done
}

# Where structs have another size, what asserts their sizes is not even built.
wrappers_assert_sizes() {
    local wrapper log="$work/larger.log"
    make_pair larger "$work/larger.h" "$target/release/libcallgate.a"
    for wrapper in python node; do
        if build_$wrapper "$work/larger" 2>"$log"; then fails "$wrapper: other structs are built in"; fi
        grep -q 'static assertion failed' "$log" || { cat "$log"; fails "$wrapper: other structs"; }
        echo "abi: $wrapper: other structs are not built in"
    done
}

versions_are_compared() {
    "$PYTHON" "$here/header.py" later "$header" >"$work/later.h"
    "$PYTHON" "$here/header.py" larger "$header" >"$work/larger.h"
    wrappers_compare_versions
    wrappers_assert_sizes
    # A C program that neither asserts nor asks is refused by their sizes.
    "$CC" -std=c11 -Wall -Werror -I "$work/larger/include" "$here/unasked.c" \
        "$work/larger/lib/libcallgate.a" -o "$work/unasked"
    "$work/unasked" || fails 'structs of another version are taken'
}
