#!/usr/bin/env bash
# Makes the C archive of this system in a folder: archive.sh FOLDER. It can be unpacked anywhere.
set -euo pipefail
out=$(realpath "$1")
cd "$(dirname "$0")/../.."
here=packaging/c

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
abi=${version%.*}
processor=$(uname -m)
[ "$(uname -s)" = Linux ] || { echo "the C archive is made on Linux only" >&2; exit 1; }

cargo build --locked --release --package callgate-ffi
built=${CARGO_TARGET_DIR:-target}/release

name=callgate-$version-linux-$processor
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
root=$scratch/$name
mkdir -p "$root"/include "$root"/lib/pkgconfig "$root"/lib/cmake/callgate
install -m 644 include/callgate.h "$root/include"
install -m 644 LICENSE-* "$root"

strip --strip-debug -o "$root/lib/libcallgate.a" "$built/libcallgate.a"
strip --strip-unneeded -o "$root/lib/libcallgate.so.$version" "$built/libcallgate.so"
chmod 644 "$root/lib/libcallgate.a"
chmod 755 "$root/lib/libcallgate.so.$version"
ln -s "libcallgate.so.$version" "$root/lib/libcallgate.so.$abi"
ln -s "libcallgate.so.$abi" "$root/lib/libcallgate.so"

fill() { sed -e "s/@VERSION@/$version/g; s/@ABI@/$abi/g; s/@PROCESSOR@/$processor/g" "$1" >"$2"; }
fill $here/callgate.pc.in "$root/lib/pkgconfig/callgate.pc"
for file in callgateConfig.cmake callgateConfigVersion.cmake; do
    fill "$here/$file.in" "$root/lib/cmake/callgate/$file"
done

mkdir -p "$out"
# The same sources give the same archive.
tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime='2000-01-01 00:00Z' \
    --directory "$scratch" "$name" | gzip -n >"$out/$name.tar.gz"
echo "$out/$name.tar.gz"
