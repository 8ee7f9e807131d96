#!/usr/bin/env bash
# How much of core the Rust tests reach: a table by file, and the lines in target/llvm-cov/html.
#
#   coverage.sh [CARGO_LLVM_COV]
#
# Tests that stop threads, read what a compiler made, or run other programs are left out.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
: "${LLVM_COV:=llvm-cov-19}" "${LLVM_PROFDATA:=llvm-profdata-19}"
for tool in "$LLVM_COV" "$LLVM_PROFDATA"; do
    command -v "$tool" >/dev/null || { echo "missing: $tool (Debian: llvm-19)" >&2; exit 1; }
done
export LLVM_COV LLVM_PROFDATA
cd "$root"
"${1:-cargo-llvm-cov}" llvm-cov --locked --package callgate-core --package callgate-tests \
    --features callgate-core/std --lib --test model --test vectors --test table --test stress_kinds --test flood \
    --no-report
"${1:-cargo-llvm-cov}" llvm-cov report --html --ignore-filename-regex '(^|/)tests/|tests\.rs$' >/dev/null
"${1:-cargo-llvm-cov}" llvm-cov report --ignore-filename-regex '(^|/)tests/|tests\.rs$' |
    awk '/^[a-z_\/]+\.rs|^TOTAL/ { printf "%-24s %10s lines %8s missed %9s\n", $1, $8, $9, $10 }'
