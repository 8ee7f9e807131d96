#!/bin/sh
# Builds the C library and puts it where cgo finds it: lib/, and library.h, through which the go
# command notices that the library is another one. Needs cargo and a clone of the whole repository.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
target=$(cd "$here/../.." && pwd)/target
target=${CARGO_TARGET_DIR:-$target}

cd "$here/../.."
cargo build --locked --release --package callgate-ffi

platform=$(go env GOOS)_$(go env GOARCH)
mkdir -p "$here/lib/$platform" "$here/lib/include"
cp "$target/release/libcallgate.a" "$here/lib/$platform/libcallgate.a"
strip -S "$here/lib/$platform/libcallgate.a"
cp include/callgate.h "$here/lib/include/callgate.h"
{
    echo '/* Written by build.sh. */'
    echo "/* libcallgate.a: sha256 $(sha256sum <"$here/lib/$platform/libcallgate.a" | cut -d ' ' -f 1) */"
    echo "/* callgate.h: sha256 $(sha256sum <include/callgate.h | cut -d ' ' -f 1) */"
    echo '#include "lib/include/callgate.h"'
} >"$here/library.h"
echo "ffi/go/lib/$platform/libcallgate.a"
