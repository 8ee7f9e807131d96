# A Rust compiler that builds `core` for machines for which none is at hand. To be sourced; needs $root.
# Debian's has the sources beside it: rustc-web, rust-web-src, cargo-web (or rustc, rust-src, cargo).

: "${CORE_RUSTC:=/usr/bin/rustc}" "${CORE_CARGO:=/usr/bin/cargo}"
built="${CARGO_TARGET_DIR:-$root/target}/verify"

needs() {
    local tool=$1 package=$2
    if ! command -v "$tool" >/dev/null; then
        echo "missing: $tool (Debian: $package)" >&2
        exit 1
    fi
}

needs "$CORE_RUSTC" rustc-web
needs "$CORE_CARGO" cargo-web
if [ ! -e "$("$CORE_RUSTC" --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock" ]; then
    echo "missing: the sources of Rust's library beside $CORE_RUSTC (Debian: rust-web-src)" >&2
    exit 1
fi

# Everything that is built so shares one folder, and with it what of `core` is built already.
core_cargo() {
    RUSTC=$CORE_RUSTC RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$built/core \
        CARGO_TARGET_I686_UNKNOWN_LINUX_GNU_LINKER=i686-linux-gnu-gcc \
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
        CARGO_TARGET_S390X_UNKNOWN_LINUX_GNU_LINKER=s390x-linux-gnu-gcc \
        "$CORE_CARGO" "$@"
}

scenario_count() {
    cat "$root"/tests/vectors/*.jsonl | grep -c .
}
