#!/usr/bin/env python3
"""Changes the engine in a thousand small ways, one at a time, and demands that a test notices each.

    check.py [--shard K/N | --file core/src/NAME.rs]

Two stages, by cargo-mutants: what core's own tests miss is tried against the reference model and the
vectors as well. What nothing notices must be in equivalent.txt, with the reason why nothing can; and
nothing may be there that is noticed after all. All of it takes half an hour on two cores, or an Nth of it.
"""
import argparse
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "target" / "verify" / "mutants"
EQUIVALENT = Path(__file__).with_name("equivalent.txt")

CORE = ["--package", "callgate-core", "--features", "callgate-core/std"]
# The arguments of `cargo test` in each stage, and how long that may take: what hangs is noticed. In the
# second stage the tests' own crate is built within that time.
UNITS = (["--lib"], 60)
MODEL = (["--package", "callgate-tests", "--lib", "--test=model", "--test=vectors", "--test=no_alloc"], 400)


def mutate(stage: tuple[list[str], int], part: list[str]) -> dict[str, list[str]]:
    """By what came of them, the mutants' names."""
    tool = os.environ.get("CARGO_MUTANTS", str(ROOT / "target" / "tools" / "bin" / "cargo-mutants"))
    # Debug information and optimisation take longer to make than they save.
    environment = dict(os.environ, CARGO_PROFILE_TEST_OPT_LEVEL="0", CARGO_PROFILE_TEST_DEBUG="0",
                       CARGO_PROFILE_DEV_DEBUG="0", CARGO_INCREMENTAL="1", PROPTEST_CASES="64")
    environment.pop("CARGO_TARGET_DIR", None)
    tests, timeout_s = stage
    command = [tool, "mutants", *CORE, *part, "--jobs", str(min(os.cpu_count() or 1, 4)),
               "--timeout", str(timeout_s), "--build-timeout", "600", "--no-shuffle", "--colors", "never",
               "--output", str(WORK), "--", "--locked", *tests]
    with open(WORK / "log", "a", encoding="utf-8") as log:
        ran = subprocess.run(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
    # 0: all were noticed. 2: some were missed. 3: some hung.
    if ran.returncode not in (0, 2, 3):
        sys.exit(f"cargo-mutants ended with {ran.returncode}: see {WORK / 'log'}")
    outcomes = json.loads((WORK / "mutants.out" / "outcomes.json").read_text())["outcomes"]
    names: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome["scenario"] != "Baseline":
            names.setdefault(outcome["summary"], []).append(outcome["scenario"]["Mutant"]["name"])
    return names


def known() -> Counter[str]:
    lines = EQUIVALENT.read_text().splitlines()
    return Counter(line for line in lines if line and not line.startswith("#"))


def without_place(name: str) -> str:
    """The file and the change, not the line: that would have to follow every edit."""
    return re.sub(r"^(\S+?):\d+:\d+: ", r"\1: ", name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shard", metavar="K/N", help="of N parts the Kth, from 0")
    parser.add_argument("--file", metavar="FILE", help="of this file only")
    options = parser.parse_args()
    part = ["--shard", options.shard, "--sharding", "round-robin"] if options.shard else []
    part += ["--file", options.file] if options.file else []
    WORK.mkdir(parents=True, exist_ok=True)
    (WORK / "log").unlink(missing_ok=True)

    first = mutate(UNITS, part)
    total = sum(len(first.get(kind, [])) for kind in ("CaughtMutant", "MissedMutant", "Timeout"))
    if total == 0:
        sys.exit(f"mutants: none in {options.file or options.shard}")
    print(f"mutants: {total}, of which core's own tests miss {len(first.get('MissedMutant', []))}", flush=True)
    missed = first.get("MissedMutant", [])
    if missed:
        only = [f"--re=^{re.escape(name)}$" for name in missed]
        again = mutate(MODEL, only)
        noticed = {*again.get("CaughtMutant", []), *again.get("Timeout", [])}
        missed = [name for name in missed if name not in noticed]

    left = known()
    unnoticed = []
    for name in sorted(missed):
        if left[without_place(name)] > 0:
            left[without_place(name)] -= 1
        else:
            unnoticed.append(name)
    for name in unnoticed:
        print(f"mutants: NOTHING NOTICES {name}")
    stale = [] if part else sorted(left.elements())
    for name in stale:
        print(f"mutants: {EQUIVALENT.name} has what is noticed, or is gone: {name}")
    caught = total - len(missed)
    print(f"mutants: {caught} of {total} noticed ({100 * caught / total:.1f} %), "
          f"{len(missed) - len(unnoticed)} that nothing can notice")
    return 1 if unnoticed or stale else 0


if __name__ == "__main__":
    sys.exit(main())
