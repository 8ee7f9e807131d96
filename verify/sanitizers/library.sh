# The C library as a sanitizer watches it. To be sourced; needs $root.
#
#   build_instrumented thread|address|fuzzer     sets $archive, and $link: what else the linker is told
#
# `address` and `fuzzer` come with overflow checks and with the standard library's own checks of what
# unsafe code may do: the sanitizer for undefined behaviour knows C only. What they find is a panic,
# which `callgate_panicked`, a function of the program's, is told of.

: "${CARGO:=cargo}" "${CLANG:=clang-19}"
built="${CARGO_TARGET_DIR:-$root/target}/verify"

needs() {
    local tool=$1 package=$2
    if ! command -v "$tool" >/dev/null; then
        echo "missing: $tool (Debian: $package)" >&2
        exit 1
    fi
}

build_instrumented() {
    local watcher=$1 host flags panics
    host=$(rustc -vV | sed -n 's/^host: //p')
    flags='-Cdebuginfo=1'
    case $host in x86_64-*) flags+=' -Ctarget-feature=+cmpxchg16b' ;; esac
    case $watcher in
        thread)
            # The 128-bit words then change by what the sanitizer knows, instead of by assembly.
            flags+=' -Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer'
            flags+=' --cfg portable_atomic_sanitize_thread'
            ;;
        address) flags+=' -Zsanitizer=address -Cdebug-assertions -Coverflow-checks' ;;
        fuzzer)
            flags+=' -Zsanitizer=address -Cdebug-assertions -Coverflow-checks'
            flags+=" $coverage_flags"
            ;;
    esac
    # Nothing of this is for production: the flags that only a nightly compiler takes are allowed.
    (cd "$root" && RUSTC_BOOTSTRAP=1 RUSTFLAGS=$flags CARGO_TARGET_DIR=$built/$watcher \
        CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
        "$CARGO" build --quiet --locked --release --target "$host" --package callgate-ffi)
    archive=$built/$watcher/$host/release/libcallgate.a
    panics=$(nm "$archive" 2>/dev/null | sed -n 's/.* \([^ ]*rust_begin_unwind\)$/\1/p' | head -n 1)
    [ -n "$panics" ] || { echo "no panic handler in $archive" >&2; exit 1; }
    link="-Wl,--wrap=$panics,--defsym=__wrap_$panics=callgate_panicked"
}

# What libFuzzer wants to know of the way that an input takes.
coverage_flags='-Ccodegen-units=1 -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4'
for of in inline-8bit-counters pc-table trace-compares; do
    coverage_flags+=" -Cllvm-args=-sanitizer-coverage-$of"
done
