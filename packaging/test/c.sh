#!/usr/bin/env bash
# Uses the C archive from where it was unpacked, by pkg-config and by CMake: c.sh ARCHIVE
set -euo pipefail
archive=$(realpath "$1")
sources=$(realpath "$(dirname "$0")/c")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

# Unpacked here and moved there: it knows no path.
mkdir first second
tar --extract --file "$archive" --directory first --strip-components 1
mv first/* second
root=$scratch/second

# Runs a program and sees that it is linked as it should be: with the shared library, or without.
check() { # PROGRAM shared|static
    "$1" >/dev/null
    case $2 in
    shared) readelf --dynamic "$1" | grep -q 'NEEDED.*\[libcallgate\.so\.0\.1\]' ;;
    static) ! readelf --dynamic "$1" | grep -q 'NEEDED.*libcallgate' ;;
    esac || { echo "$1 is not linked with the $2 library" >&2; exit 1; }
}

# A distribution's pkg-config may have another default path; only the archive's counts here.
export PKG_CONFIG_LIBDIR=$root/lib/pkgconfig
pkg-config --exact-version="$(basename "$archive" | cut -d- -f2)" callgate
warnings=(-std=c11 -Wall -Wextra -Wpedantic -Werror)
cc "${warnings[@]}" -o shared "$sources/use.c" $(pkg-config --cflags --libs callgate) \
    "-Wl,-rpath,$root/lib"
check ./shared shared
cc "${warnings[@]}" -o static "$sources/use.c" $(pkg-config --cflags callgate) \
    -Wl,-Bstatic $(pkg-config --static --libs callgate) -Wl,-Bdynamic
check ./static static
echo "pkg-config: shared and static"

cmake -S "$sources" -B build -DCMAKE_PREFIX_PATH="$root" -DCMAKE_BUILD_TYPE=Release >cmake.log ||
    { cat cmake.log >&2; exit 1; }
cmake --build build >build.log || { cat build.log >&2; exit 1; }
check build/use_shared shared
check build/use_static static
echo "CMake: shared and static"

# A version that it does not have is not found.
mkdir other
printf '%s\n' 'cmake_minimum_required(VERSION 3.16)' 'project(other C)' \
    'find_package(callgate 0.2 REQUIRED CONFIG)' >other/CMakeLists.txt
if cmake -S other -B other/build -DCMAKE_PREFIX_PATH="$root" >/dev/null 2>&1; then
    echo "CMake takes it for version 0.2" >&2
    exit 1
fi
