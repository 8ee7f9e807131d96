#!/usr/bin/env bash
# The C library, and what is built on it, under sanitizers:
#
#   run.sh thread      many threads call every function, watched by ThreadSanitizer
#   run.sh address     the same by AddressSanitizer and UndefinedBehaviorSanitizer, on a library with
#                      overflow checks; also while the gate's memory is overwritten
#   run.sh memcheck    the C conformance suite and the crowd by valgrind, on the library as released
#   run.sh extensions  the tests of the Python and Node packages, whose C is watched as in `address`
#
# Without arguments, all of it. Each part first shows that it would notice: faults that are compiled in
# must be reported. ROUNDS=n sets how long the crowd works.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=library.sh
. "$here/library.sh"
# shellcheck source=extensions.sh
. "$here/extensions.sh"

# Far above what any of it takes: only there so that a hang is a failure.
: "${ROUNDS:=300000}" "${THREADS:=4}" "${PATIENCE_S:=1200}"
say() { printf '%s: %s\n' "$part" "$*"; }

# Compiles the crowd with what stands for nothing or a seeded fault.
compile() {
    local fault=$1
    shift
    "$CLANG" -std=gnu11 -O1 -g -Wall -Wextra -Wpedantic -Werror "-D$fault" -I "$root/include" \
        "$here/crowd.c" "$@" -lpthread -o "$built/crowd-$part-$fault"
}

passes() {
    local what=$1 log="$built/$part.log"
    shift
    if ! timeout "$PATIENCE_S" "$@" >"$log" 2>&1; then
        tail -n 60 "$log"
        say "FAILED: $what"
        exit 1
    fi
    say "$what: $(tail -n 1 "$log")"
}

# A fault that is there must be reported, in those words.
is_noticed() {
    local fault=$1 words=$2 log="$built/$part-$1.log"
    shift 2
    # In a shell of its own, whose words about how it ended go to the log too.
    if (timeout "$PATIENCE_S" "$@"; exit $?) >"$log" 2>&1 || ! grep -q "$words" "$log"; then
        tail -n 20 "$log"
        say "FAILED: the fault $fault was not noticed"
        exit 1
    fi
    say "noticed $fault: $(grep -m 1 "$words" "$log" | cut -c 1-90)"
}

watch_threads() {
    local fault
    build_instrumented thread
    export TSAN_OPTIONS=halt_on_error=1
    for fault in SEEDED_RACE_OUTPUT SEEDED_RACE_MEMORY; do
        compile "$fault" -fsanitize=thread "$archive"
        is_noticed "$fault" 'ThreadSanitizer: data race' "$built/crowd-$part-$fault" "$THREADS" "$ROUNDS"
    done
    compile NO_FAULT -fsanitize=thread "$archive"
    passes 'no race' "$built/crowd-$part-NO_FAULT" "$THREADS" "$ROUNDS"
}

watch_addresses() {
    local fault
    local -A words=(
        [SEEDED_OVERFLOW]='AddressSanitizer: heap-buffer-overflow'
        [SEEDED_UNDEFINED_C]='runtime error: signed integer overflow'
        [SEEDED_UNDEFINED_RUST]='the library panicked'
    )
    build_instrumented address
    for fault in NO_FAULT "${!words[@]}"; do
        compile "$fault" -fsanitize=address,undefined -fno-sanitize-recover=all "$archive" "$link"
    done
    for fault in "${!words[@]}"; do
        is_noticed "$fault" "${words[$fault]}" "$built/crowd-$part-$fault" "$THREADS" "$ROUNDS"
    done
    passes 'no stray access' "$built/crowd-$part-NO_FAULT" "$THREADS" "$ROUNDS"
    passes 'nor while the memory is overwritten' \
        "$built/crowd-$part-NO_FAULT" "$THREADS" "$ROUNDS" overwrite
}

watch_conformance() {
    local memcheck=(valgrind --quiet --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=all
        "--suppressions=$here/memcheck.supp")
    local release="${CARGO_TARGET_DIR:-$root/target}/release/libcallgate.a"
    needs valgrind valgrind
    needs cc gcc
    (cd "$root" && "$CARGO" build --quiet --locked --release --package callgate-ffi)
    cc -std=c99 -O1 -g -I "$root/include" -I "$root/tests/c" "$root"/tests/c/conformance*.c "$release" \
        -o "$built/conformance"
    compile NO_FAULT "$release"
    compile SEEDED_OVERFLOW "$release"
    is_noticed SEEDED_OVERFLOW 'Invalid write' "${memcheck[@]}" "$built/crowd-$part-SEEDED_OVERFLOW" 2 2000
    passes 'the conformance suite' "${memcheck[@]}" "$built/conformance"
    passes 'the crowd' "${memcheck[@]}" "$built/crowd-$part-NO_FAULT" "$THREADS" $((ROUNDS / 100 + 1))
}

# A function that was added is driven too, or this fails.
every_function_is_driven() {
    local name
    for name in $(sed -n 's/^[a-z][a-z_0-9 *]*[ *]\(callgate_[a-z_]*\)(.*/\1/p' "$root/include/callgate.h"); do
        grep -q "$name(" "$here/crowd.c" || { echo "crowd.c never calls $name" >&2; exit 1; }
        count=$((${count:-0} + 1))
    done
    [ "${count:-0}" -ge 28 ] || { echo "callgate.h has only ${count:-0} functions?" >&2; exit 1; }
}

needs "$CLANG" 'clang-19 libclang-rt-19-dev'
needs nm binutils
needs rustc 'rustc, by rustup'
mkdir -p "$built"
every_function_is_driven
[ $# -gt 0 ] || set -- thread address memcheck extensions
for part in "$@"; do
    case $part in
        thread) watch_threads ;;
        address) watch_addresses ;;
        memcheck) watch_conformance ;;
        extensions) watch_extensions ;;
        *) sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
    esac
done
