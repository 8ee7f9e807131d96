#!/usr/bin/env python3
"""Changes the engine in a thousand small ways, one at a time, and demands that a test notices each.

    check.py [--shard K/N]

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
# Built before the clock of a test begins, or a slow build would pass for a test that hangs.
MODEL = ["--test-package", "callgate-core,callgate-tests", "--cargo-arg=--lib", "--cargo-arg=--test=model",
         "--cargo-arg=--test=vectors"]
UNITS = ["--cargo-arg=--lib"]
# Many times what the tests take: only a test that hangs takes longer, and that is noticed.
TIMEOUT_S = 60


def mutate(tests: list[str], shard: list[str], more: list[str]) -> dict[str, list[str]]:
    """By what came of them, the mutants' names."""
    tool = os.environ.get("CARGO_MUTANTS", str(ROOT / "target" / "tools" / "bin" / "cargo-mutants"))
    # Debug information and optimisation take longer to make than they save.
    environment = dict(os.environ, CARGO_PROFILE_TEST_OPT_LEVEL="0", CARGO_PROFILE_TEST_DEBUG="0",
                       CARGO_PROFILE_DEV_DEBUG="0", CARGO_INCREMENTAL="1", PROPTEST_CASES="64")
    environment.pop("CARGO_TARGET_DIR", None)
    command = [tool, "mutants", *CORE, *tests, *shard, *more, "--jobs", str(min(os.cpu_count() or 1, 4)),
               "--timeout", str(TIMEOUT_S), "--build-timeout", "600", "--no-shuffle", "--colors", "never",
               "--output", str(WORK)]
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
    options = parser.parse_args()
    shard = ["--shard", options.shard, "--sharding", "round-robin"] if options.shard else []
    WORK.mkdir(parents=True, exist_ok=True)
    (WORK / "log").unlink(missing_ok=True)

    first = mutate(UNITS, shard, [])
    total = sum(len(first.get(kind, [])) for kind in ("CaughtMutant", "MissedMutant", "Timeout"))
    print(f"mutants: {total}, of which core's own tests miss {len(first.get('MissedMutant', []))}", flush=True)
    # Only what was missed is tried again.
    missed = mutate(MODEL, shard, ["--iterate"]).get("MissedMutant", []) if "MissedMutant" in first else []

    left = known()
    unnoticed = []
    for name in sorted(missed):
        if left[without_place(name)] > 0:
            left[without_place(name)] -= 1
        else:
            unnoticed.append(name)
    for name in unnoticed:
        print(f"mutants: NOTHING NOTICES {name}")
    stale = [] if options.shard else sorted(left.elements())
    for name in stale:
        print(f"mutants: {EQUIVALENT.name} has what is noticed, or is gone: {name}")
    noticed = total - len(missed)
    print(f"mutants: {noticed} of {total} noticed ({100 * noticed / total:.1f} %), "
          f"{len(missed) - len(unnoticed)} that nothing can notice")
    return 1 if unnoticed or stale else 0


if __name__ == "__main__":
    sys.exit(main())
