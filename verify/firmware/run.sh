#!/usr/bin/env bash
# The engine on microcontrollers, emulated by QEMU: the decision vectors on a Cortex-M4 (mps2-an386) and
# on a Cortex-M0 (microbit; no compare-and-swap, so under a critical section), and what a gate of 64
# callers takes of flash and RAM. First an expectation is falsified, which must be noticed. The C library
# is built for both as well: it must want nothing of a system.
#
#   run.sh [m4|m0]...
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=../architectures/toolchain.sh
. "$here/../architectures/toolchain.sh"

: "${PATIENCE_S:=1200}" "${SIZE:=arm-none-eabi-size}" "${NM:=arm-none-eabi-nm}"
declare -A TARGET=([m4]=thumbv7em-none-eabi [m0]=thumbv6m-none-eabi)
declare -A FEATURES=([m4]='' [m0]=critical-section)
# The last two: the chip's larger variant, and flash for the vectors.
declare -A BOARD=(
    [m4]='-M mps2-an386'
    [m0]='-M microbit -global nrf51-soc.sram-size=32768 -global nrf51-soc.flash-size=1048576'
)
[ $# -gt 0 ] || set -- m4 m0

fails() {
    [ -z "${2:-}" ] || tail -n 40 "$2"
    echo "$chip: FAILED: $1"
    exit 1
}

build() {
    (cd "$here" && CARGO_ENCODED_RUSTFLAGS=$'-Clinker=ld.lld-19\x1f-Clinker-flavor=ld.lld' \
        core_cargo build --quiet --locked --release -Zbuild-std=core \
        -Zbuild-std-features=compiler-builtins-mem --target "${TARGET[$chip]}" \
        --features "${FEATURES[$chip]}" "$@")
}

program() { echo "$built/core/${TARGET[$chip]}/release/$1"; }

# Runs a program on the chip; what it prints goes to $log.
run() {
    log="$built/$chip-$1.log"
    # shellcheck disable=SC2086
    timeout "$PATIENCE_S" qemu-system-arm ${BOARD[$chip]} -nographic -monitor none -serial none \
        -semihosting-config enable=on,target=native -kernel "$(program "$1")" >"$log" 2>&1 </dev/null
}

notices_what_is_false() {
    CALLGATE_SEEDED=decision build --bin vectors
    if run vectors; then fails 'a falsified decision was not noticed' "$log"; fi
    grep -q '[1-9][0-9]* failed$' "$log" || fails 'a falsified decision broke the program' "$log"
    echo "$chip: noticed a falsified decision: $(tail -n 1 "$log")"
}

runs_the_vectors() {
    run vectors || fails "the vectors ended with $?" "$log"
    [ "$(tail -n 1 "$log")" = "vectors: $(scenario_count) passed, 0 failed" ] || fails vectors "$log"
    grep -q '^keys: 128 of 128 ' "$log" || fails keys "$log"
    echo "$chip: $(tail -n 1 "$log"); keys as here"
}

# What it writes to flash, and what it takes of RAM apart from the stack.
sizes() { "$SIZE" "$(program "$1")" | awk 'NR == 2 { print $1 + $2, $2 + $3 }'; }

reports_what_a_gate_takes() {
    local flash ram empty_flash empty_ram
    run gate || fails "the program with the gate ended with $?" "$log"
    run empty || fails "the empty program ended with $?" "$log"
    read -r flash ram < <(sizes gate)
    read -r empty_flash empty_ram < <(sizes empty)
    echo "$chip: a gate of 64 callers takes $((flash - empty_flash)) bytes of flash" \
        "and $((ram - empty_ram)) bytes of RAM"
}

builds_the_c_library() {
    local feature=${FEATURES[$chip]:+callgate-core/${FEATURES[$chip]}} library symbols
    (cd "$root" && core_cargo rustc --quiet --locked --release -Zbuild-std=core \
        --target "${TARGET[$chip]}" --package callgate-ffi --crate-type staticlib --features "$feature")
    library="$built/core/${TARGET[$chip]}/release/libcallgate.a"
    symbols=$("$NM" "$library" 2>/dev/null)
    grep -q ' T callgate_admit_at$' <<<"$symbols" || fails 'the C library lacks callgate_admit_at'
    if grep ' U clock_gettime$' <<<"$symbols"; then fails "the C library wants a system's clock"; fi
    echo "$chip: the C library is built"
}

needs qemu-system-arm qemu-system-arm
needs ld.lld-19 lld-19
needs "$SIZE" binutils-arm-none-eabi
mkdir -p "$built"
for chip in "$@"; do
    [ -n "${TARGET[$chip]:-}" ] || { sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
    notices_what_is_false
    build
    runs_the_vectors
    reports_what_a_gate_takes
    builds_the_c_library
done
