#!/usr/bin/env bash
# Fuzzing, guided by what is new in the code:
#
#   run.sh operations [SECONDS]    any gate, any operations: nothing panics, what is told adds up
#   run.sh model [SECONDS]         the same, held against the reference model, field by field
#   run.sh abi [SECONDS]           any bytes through the C ABI, and the gate's memory overwritten
#   run.sh http [SECONDS]          any requests to real MCP servers behind the middleware: in Python
#   run.sh http-go [SECONDS]       the same in Go: FuzzHTTP in ffi/go/mcp
#   run.sh http-node [SECONDS]     the same in Node, where requests are random: nothing guides them
#   run.sh all [SECONDS]           each of these, one after the other
#   run.sh minimise TARGET         keeps of all inputs that were found those that reach something alone;
#                                  not of http-go, whose seeds are in its test, and http-node
#
# Each begins with the inputs in seeds/, and then looks for more, 20 s if nothing else is said. What it
# finds is kept in target/verify/fuzz, so a later run goes on from there; a failing input too. Before
# that, a fault that is built in must be found.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/.." && pwd)
# shellcheck source=../verify/sanitizers/library.sh
. "$root/verify/sanitizers/library.sh"

: "${PYTHON:=$root/target/venv/bin/python}"
: "${GO:=go}"
: "${NODE:=node}"
# A hang, on a machine that does other things as well.
: "${HANG_S:=120}"
work="$built/fuzz"
host=$(rustc -vV | sed -n 's/^host: //p')

fails() { echo "$target: FAILED: $1"; exit 1; }

build() {
    case $target in
        operations | model)
            local flags="-Cdebug-assertions -Coverflow-checks -Zsanitizer=address $coverage_flags"
            case $host in x86_64-*) flags+=' -Ctarget-feature=+cmpxchg16b' ;; esac
            (cd "$here" && RUSTC_BOOTSTRAP=1 RUSTFLAGS="--cfg fuzzing -Cdebuginfo=1 $flags" \
                CARGO_TARGET_DIR=$work/rust "$CARGO" build --quiet --locked --release \
                --target "$host" --bin "$target")
            program=("$work/rust/$host/release/$target")
            ;;
        abi)
            needs "$CLANG" 'clang-19 libclang-rt-19-dev'
            build_instrumented fuzzer
            for fault in NO_FAULT SEEDED_SHORT; do
                "$CLANG" -std=gnu11 -O1 -g -Wall -Wextra -Wpedantic -Werror "-D$fault" \
                    -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined \
                    -I "$root/include" "$here/abi/abi.c" "$archive" "$link" -o "$work/abi-$fault"
            done
            program=("$work/abi-NO_FAULT")
            ;;
        http)
            if ! "$PYTHON" -c 'import atheris, callgate.mcp, mcp, fastmcp' 2>/dev/null; then
                echo "missing in $PYTHON: atheris (pip install -r fuzz/requirements.txt), or callgate" \
                    "and what its tests need (make target/venv/installed)" >&2
                exit 1
            fi
            # By its own name: to merge inputs, libFuzzer starts it once more.
            export PYTHONDONTWRITEBYTECODE=1 PATH="$(cd "$(dirname "$PYTHON")" && pwd):$PATH"
            program=("$here/http/http_requests.py")
            ;;
        http-go)
            if [ ! -e "$root/ffi/go/library.h" ]; then
                echo 'missing: the C library for the Go module (make target/go/library)' >&2
                exit 1
            fi
            program=("$work/http-go")
            (cd "$root/ffi/go" && "$GO" test -c -fuzz='^FuzzHTTP$' -o "${program[0]}" ./mcp)
            ;;
        http-node)
            if [ ! -e "$root/ffi/node/dist/mcp/index.js" ] || [ ! -e "$here/http/node/node_modules" ]; then
                echo 'missing: the Node package, or the fuzz target (make target/node/built target/fuzz/node)' >&2
                exit 1
            fi
            program=("$NODE" "$here/http/node/http_requests.mjs")
            ;;
        *) sed -n '2,18s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
    esac
}

# The built-in fault is found, by the seeds or soon after.
finds_the_fault() {
    local log="$work/$target-seeded.log" options=(-seed=1 -timeout="$HANG_S" -max_len=2048 -runs=200000)
    case $target in
        abi) set -- "$work/abi-SEEDED_SHORT" ;;
        *) set -- env CALLGATE_SEEDED=1 "${program[@]}" ;;
    esac
    # What is found is written to the first folder.
    mkdir -p "$work/seeded/$target"
    if "$@" "${options[@]}" -artifact_prefix="$work/seeded-" "$work/seeded/$target" "$here/seeds/$target" >"$log" 2>&1; then
        fails 'a fault that is built in was not found'
    fi
    grep -qE 'panicked at|AssertionError|AddressSanitizer' "$log" || { tail "$log"; fails 'the fault'; }
    echo "$target: the fault that is built in was found"
}

fuzz() {
    local log="$work/$target.log" corpus="$work/corpus/$target"
    mkdir -p "$corpus" "$work/artifacts"
    if ! "${program[@]}" "$corpus" "$here/seeds/$target" -max_total_time="$seconds" -max_len=2048 \
        -timeout="$HANG_S" -rss_limit_mb=4096 -artifact_prefix="$work/artifacts/$target-" \
        -print_final_stats=1 >"$log" 2>&1; then
        tail -n 40 "$log"
        fails "see $work/artifacts and $log"
    fi
    echo "$target: $(sed -n 's/^Done //p' "$log"), nothing found"
}

# Runs a target that is not libFuzzer's: for so many seconds, with folders for what fails and for what is
# found besides.
search() {
    local failing=$2 corpus=$3
    mkdir -p "$failing" "$corpus"
    case $target in
        # What fails goes to testdata/ of the folder in which it runs.
        http-go) (cd "$failing" && "${program[@]}" -test.run='^$' -test.fuzz='^FuzzHTTP$' -test.parallel=1 \
            -test.fuzztime="$1s" -test.fuzzminimizetime=0s -test.fuzzcachedir="$corpus") ;;
        http-node) HANG_S=$HANG_S "${program[@]}" --seconds="$1" --failing="$failing" ;;
    esac
}

search_finds_the_fault() {
    local log="$work/$target-seeded.log" failing="$work/seeded/$target"
    rm -rf "$failing"
    if CALLGATE_SEEDED=1 search 120 "$failing" "$failing/corpus" >"$log" 2>&1; then
        fails 'a fault that is built in was not found'
    fi
    grep -qE '[1-9][0-9]* ran, 0 charged' "$log" || { tail "$log"; fails 'the fault'; }
    echo "$target: the fault that is built in was found"
}

search_on() {
    local log="$work/$target.log" failing="$work/artifacts/$target"
    if ! search "$seconds" "$failing" "$work/corpus/$target" >"$log" 2>&1; then
        tail -n 40 "$log"
        # As go test names it, it would run in the sources.
        [ "$target" = http-node ] || echo "again: cd $failing && ${program[0]} -test.run=FuzzHTTP"
        fails "see $failing and $log"
    fi
    # Where many were found before, a short time is over before there are new ones.
    echo "$target: $(sed -n -e 's/^Done //p' -e 's/^fuzz: .*execs: \([0-9]*\).*/\1 runs/p' \
        -e 's/^fuzz: .*coverage: \([0-9]*\).*/\1 runs, of what was found before/p' "$log" | tail -n 1), nothing found"
}

minimise() {
    local least="$work/least-$target"
    rm -rf "$least"
    mkdir -p "$least"
    "${program[@]}" -set_cover_merge=1 -use_counters=0 -max_len=2048 "$least" "$work/corpus/$target" \
        "$here/seeds/$target" >"$work/$target.log" 2>&1
    [ -n "$(ls "$least")" ] || fails "nothing is left of the inputs: see $work/$target.log"
    rm -rf "${here:?}/seeds/$target"
    mv "$least" "$here/seeds/$target"
    echo "$target: $(find "$here/seeds/$target" -type f | wc -l) inputs kept"
}

mkdir -p "$work"
seconds=${2:-20}
case ${1:-} in
    all) targets=(operations model abi http http-go http-node) ;;
    minimise) case ${2:-} in http-*) targets=(none) ;; *) targets=("${2:-}") ;; esac ;;
    *) targets=("${1:-}") ;;
esac
for target in "${targets[@]}"; do
    build
    if [ "${1:-}" = minimise ]; then
        minimise
    elif [[ $target == http-* ]]; then
        search_finds_the_fault
        search_on
    else
        finds_the_fault
        fuzz
    fi
done
