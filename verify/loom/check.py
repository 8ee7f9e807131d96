#!/usr/bin/env python3
"""Runs the table's loom tests, then breaks the table in many ways and sees each found.

    check.py [--faults] [--only NAME] [--all-tests]

A fault is one change of the sources, made in a copy of them; the text that it replaces must be there
exactly once, so that a fault can't silently come to nothing when the table changes. A fault that no
test finds is an error, and so is a fault that doesn't compile.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from faults import FAULTS

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "target" / "verify" / "loom"
COPY = WORK / "callgate"
TESTS = "table::loom_tests"


def copy_sources() -> None:
    """The core alone, as a workspace, so that nothing else is built."""
    shutil.rmtree(COPY, ignore_errors=True)
    COPY.mkdir(parents=True)
    # As new files: cargo goes by their times, and would take the fault before for what is there now.
    shutil.copytree(ROOT / "core", COPY / "core", copy_function=shutil.copy)
    for name in ("Cargo.lock", "README.md"):
        shutil.copy(ROOT / name, COPY)
    manifest = (ROOT / "Cargo.toml").read_text()
    manifest = re.sub(r"(?m)^members = .*$", 'members = ["core"]', manifest)
    manifest = re.sub(r"(?m)^default-members = .*$", "", manifest)
    (COPY / "Cargo.toml").write_text(manifest)


def run(tests: list[str]) -> tuple[bool, bool, str]:
    """Whether it was built, whether all tests passed, and what was said."""
    environment = dict(os.environ, RUSTFLAGS="--cfg loom", RUST_BACKTRACE="0",
                       CARGO_TARGET_DIR=str(WORK / "target"), CARGO_TERM_COLOR="never")
    cargo = [os.environ.get("CARGO", "cargo"), "test", "--quiet", "--package", "callgate-core", "--lib"]
    built = subprocess.run([*cargo, "--no-run"], cwd=COPY, env=environment, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if built.returncode != 0:
        return False, False, built.stdout
    filters = [f"{TESTS}::{test}" for test in tests] or [TESTS]
    ran = subprocess.run([*cargo, "--", *filters, "--nocapture"], cwd=COPY, env=environment, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return True, ran.returncode == 0, ran.stdout


def seed(changes: list[tuple[str, str, str]]) -> None:
    for name, old, new in changes:
        path = COPY / "core" / "src" / name
        text = path.read_text()
        if text.count(old) != 1:
            sys.exit(f"{name} has {text.count(old)} times, not once:\n{old}")
        path.write_text(text.replace(old, new))


def failed_tests(said: str) -> str:
    names = re.findall(rf"(?m)^    {TESTS}::(\S+)$", said)
    return ", ".join(sorted(set(names))) or "?"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", action="store_true", help="the faults, and not the table as it is")
    parser.add_argument("--only", metavar="NAME", help="of the faults, this one")
    parser.add_argument("--all-tests", action="store_true", help="every test against every fault")
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    start, wrong = time.monotonic(), 0
    copy_sources()
    if not options.faults:
        built, passed, said = run([])
        executions = sum(map(int, re.findall(r"(\d+) executions", said)))
        print(f"the table as it is: {'holds' if passed else 'FAILS'}, {executions} executions, "
              f"{time.monotonic() - start:.0f} s", flush=True)
        if not passed:
            print(said)
            return 1
    for name, (changes, tests) in FAULTS.items():
        if options.only not in (None, name):
            continue
        begun = time.monotonic()
        copy_sources()
        seed(changes)
        built, passed, said = run([] if options.all_tests else tests)
        verdict = "does not compile" if not built else "NOT FOUND" if passed else "found"
        wrong += verdict != "found"
        by = f" by {failed_tests(said)}" if verdict == "found" else ""
        print(f"{name}: {verdict}{by}, {time.monotonic() - begun:.0f} s", flush=True)
        if not built:
            print(said)
    print(f"{wrong} wrong, {time.monotonic() - start:.0f} s")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
