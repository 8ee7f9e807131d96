#!/usr/bin/env bash
# The binary interface: that it is what is committed here, that it still fits programs that were built for
# the last release, and that a header and a library which don't fit are told apart by their versions
# (versions.sh), in C, Python, Node and Go.
#
#   run.sh              the check
#   run.sh refresh      writes symbols.txt and layout.txt anew, after a change that was meant
#   run.sh release      writes released/ anew: at each release, never in between
#
#   symbols.txt    what the shared library exports
#   layout.txt     every struct with its size, every field with its offset and size, every constant
#   released/      of the last release: callgate.h, types.abi (of every function), library.abi (symbols)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
: "${CARGO:=cargo}" "${PYTHON:=python3}" "${NODE:=node}" "${GO:=go}" "${CC:=cc}"
export CC
target="${CARGO_TARGET_DIR:-$root/target}"
work="$target/verify/abi"
header="$root/include/callgate.h"
released="$here/released"

fails() { echo "abi: FAILED: $1"; exit 1; }
needs() { command -v "$1" >/dev/null || { echo "missing: $1 (Debian: $2)" >&2; exit 1; }; }
version_of() { sed -n 's/^#define CALLGATE_VERSION //p' "$1"; }
dotted() { echo "$(($1 >> 16)).$(($1 >> 8 & 255)).$(($1 & 255))"; }
# shellcheck source=versions.sh
. "$here/versions.sh"

# The types of all functions of a header, as abidiff reads them.
describe_types() {
    local from=$1 to=$2
    "$PYTHON" "$here/header.py" types "$from" >"$work/types.c"
    # From within, so that no path of this machine is told.
    (cd "$work" && "$CC" -shared -fPIC -g -I "$(dirname "$from")" types.c -o types.so)
    abidw --no-corpus-path --no-comp-dir-path --no-show-locs --out-file "$to" "$work/types.so"
}

describe_library() {
    abidw --no-corpus-path --no-comp-dir-path --no-show-locs --no-elf-needed --out-file "$1" \
        "$target/release/libcallgate.so"
}

is_committed() {
    local what
    "$PYTHON" "$here/header.py" layout "$header" >"$work/layout.txt"
    nm -D --defined-only "$target/release/libcallgate.so" | awk '{ print $2, $3 }' | LC_ALL=C sort \
        >"$work/symbols.txt"
    for what in layout.txt symbols.txt; do
        diff -u "$here/$what" "$work/$what" || fails "$what is another: if that is meant, run $0 refresh"
        echo "abi: $what: $(wc -l <"$here/$what") lines as committed"
    done
}

# Functions may be added; nothing may be another, or gone. Whoever changes what was released must raise
# the minor version, and with it the shared library's name.
fits_what_was_released() {
    local old new log="$work/abidiff.log" part
    old=$(version_of "$released/callgate.h") new=$(version_of "$header")
    describe_types "$header" "$work/types.abi"
    describe_library "$work/library.abi"
    for part in types library; do
        if ! abidiff --no-added-syms "$released/$part.abi" "$work/$part.abi" >"$log" 2>&1; then
            cat "$log"
            [ $((new >> 8)) -gt $((old >> 8)) ] ||
                fails "$part differ from the release's, but the minor version is the same"
            echo "abi: $part differ from the release's, as the version says"
        else
            echo "abi: $part: as released in version $(dotted "$old")"
        fi
    done
}

# What abidiff must see, or it proves nothing.
notices() {
    local what=$1 change=$2 of="$work/changed"
    mkdir -p "$of"
    sed "$change" "$header" >"$of/callgate.h"
    cmp -s "$header" "$of/callgate.h" && fails "'$change' changes nothing"
    describe_types "$of/callgate.h" "$work/changed.abi"
    if abidiff --no-added-syms "$work/types.abi" "$work/changed.abi" >"$work/changed.log" 2>&1; then
        fails "$what was not noticed"
    fi
    echo "abi: noticed $what"
}

needs "$CC" gcc
needs nm binutils
needs objcopy binutils
needs gcc-ar gcc
needs abidw abigail-tools
needs "$CARGO" 'cargo, by rustup'
needs "$PYTHON" python3
needs "$NODE" nodejs
needs "$GO" golang
mkdir -p "$work"
(cd "$root" && "$CARGO" build --quiet --locked --release --package callgate-ffi)
case ${1:-check} in
    check)
        is_committed
        fits_what_was_released
        notices 'a field that moved' 's/^  uint32_t max_in_flight;/  uint64_t max_in_flight;/'
        notices 'an argument of another type' 's/^\( *\)uint32_t outcome,/\1uint64_t outcome,/'
        notices 'a status that means something else' 's/CALLGATE_LAPSED = 2,/CALLGATE_LAPSED = 5,/'
        notices 'a function that is gone' 's/^uint32_t callgate_version(void);//'
        versions_are_compared
        ;;
    refresh)
        "$PYTHON" "$here/header.py" layout "$header" >"$here/layout.txt"
        nm -D --defined-only "$target/release/libcallgate.so" | awk '{ print $2, $3 }' | LC_ALL=C sort \
            >"$here/symbols.txt"
        ;;
    release)
        mkdir -p "$released"
        cp "$header" "$released/callgate.h"
        describe_types "$header" "$released/types.abi"
        describe_library "$released/library.abi"
        ;;
    *) sed -n '2,14s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
