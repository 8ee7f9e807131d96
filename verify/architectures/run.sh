#!/usr/bin/env bash
# The engine on other machines, under QEMU's user mode: i686 (32 bits, no 128-bit compare-and-swap),
# aarch64 (weakly ordered), s390x (big-endian). On each of them
#
#   the decision vectors, and 128 keys that must be those of this machine;
#   the C conformance suite, on the C library as it is built for that machine;
#   many threads on one gate (verify/sanitizers/crowd.c).
#
# And the engine is built for riscv32imac. First an expectation is falsified, which must be noticed.
#
#   run.sh [i686|aarch64|s390x|riscv32imac]...
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=toolchain.sh
. "$here/toolchain.sh"

: "${ROUNDS:=20000}" "${PATIENCE_S:=1200}"
declare -A QEMU=([i686]=qemu-i386 [aarch64]=qemu-aarch64 [s390x]=qemu-s390x)
[ $# -gt 0 ] || set -- i686 aarch64 s390x riscv32imac

fails() {
    [ -z "${2:-}" ] || tail -n 40 "$2"
    echo "$machine: FAILED: $1"
    exit 1
}

# Runs a program of that machine; the last line that it prints goes to $said.
on_machine() {
    local log="$built/$machine.log"
    timeout "$PATIENCE_S" "${QEMU[$machine]}" -L "/usr/$machine-linux-gnu" "$@" >"$log" 2>&1 ||
        fails "${1##*/} ended with $?" "$log"
    said=$(tail -n 1 "$log")
}

build_scenarios() {
    (cd "$here" && core_cargo build --quiet --locked --release -Zbuild-std=core "$@" \
        --package callgate-scenarios-linux)
}

notices_what_is_false() {
    local falsified log="$built/$machine.log" program="$built/core/$machine-unknown-linux-gnu/release/scenarios"
    for falsified in decision key; do
        CALLGATE_SEEDED=$falsified build_scenarios --target "$machine-unknown-linux-gnu"
        if timeout "$PATIENCE_S" "${QEMU[$machine]}" -L "/usr/$machine-linux-gnu" "$program" >"$log" 2>&1
        then
            fails "a falsified $falsified was not noticed" "$log"
        fi
        grep -q '[1-9][0-9]* failed$' "$log" || fails "a falsified $falsified broke the program" "$log"
        echo "$machine: noticed a falsified $falsified: $(tail -n 1 "$log")"
    done
}

runs_the_vectors() {
    on_machine "$built/core/$machine-unknown-linux-gnu/release/scenarios"
    [ "$said" = "vectors: $(scenario_count) passed, 0 failed" ] || fails "$said" "$built/$machine.log"
    grep -q '^keys: 128 of 128 ' "$built/$machine.log" || fails 'keys' "$built/$machine.log"
    echo "$machine: $(head -n 1 "$built/$machine.log"); $said; keys as here"
}

runs_c() {
    local archive="$built/core/$machine-unknown-linux-gnu/release/libcallgate.a"
    local cc=("$machine-linux-gnu-gcc" -O1 -Wall -Wextra -Wpedantic -Werror -I "$root/include")
    "${cc[@]}" -std=c99 -I "$root/tests/c" "$root"/tests/c/conformance*.c "$archive" \
        -o "$built/conformance-$machine"
    on_machine "$built/conformance-$machine"
    echo "$machine: $said"
    # Statically: under QEMU, no dynamic program of i686 gets beyond making a thread.
    "${cc[@]}" -std=gnu11 "$root/verify/sanitizers/crowd.c" "$archive" -static -lpthread \
        -o "$built/crowd-$machine"
    on_machine "$built/crowd-$machine" 4 "$ROUNDS"
    echo "$machine: $said"
}

mkdir -p "$built"
targets=()
for machine in "$@"; do
    case $machine in
        i686 | aarch64 | s390x)
            needs "$machine-linux-gnu-gcc" "gcc-${machine/_/-}-linux-gnu and its libc6-dev-*-cross"
            needs "${QEMU[$machine]}" qemu-user
            targets+=(--target "$machine-unknown-linux-gnu")
            ;;
        riscv32imac)
            (cd "$root" && core_cargo build --quiet --locked --release -Zbuild-std=core \
                --target riscv32imac-unknown-none-elf --package callgate-core)
            echo "$machine: the engine is built"
            ;;
        *) sed -n '2,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
    esac
done
[ "${#targets[@]}" -gt 0 ] || exit 0
(cd "$root" && core_cargo build --quiet --locked --release -Zbuild-std=core "${targets[@]}" \
    --package callgate-ffi)
machine=${targets[-1]#--target } machine=${machine%%-*}
notices_what_is_false
build_scenarios "${targets[@]}"
for machine in "$@"; do
    [ "$machine" = riscv32imac ] || { runs_the_vectors; runs_c; }
done
