"""Gives the subjects of each language their turns and prints what they took: `make bench-peers`.

    compare.py LANGUAGE=COMMAND ...

README.md says what is measured, and what the programs do.
"""

from __future__ import annotations

import json
import platform
import shlex
import subprocess
import sys
from contextlib import ExitStack
from statistics import median

US = "callgate"
CALLERS = (1, 10_000, 1_000_000)
VERDICTS = ("admit", "refuse")
WARM_UP_ROUNDS = 5
ROUNDS = 31

Subject = tuple[str, int]
"""With so many threads."""
Cell = tuple[str, int]
"""Admit or refuse, with so many callers."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Worker:
    """The process of one subject."""

    def __init__(self, command: list[str]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1)

    def hear(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            sys.exit(f"{self.process.args} ended with {self.process.wait()}")
        return line

    def turn_ns(self, seed: int) -> float:
        assert self.process.stdin is not None
        print(seed, file=self.process.stdin)
        return float(self.hear())

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def measure(command: list[str], subjects: list[Subject], cell: Cell) -> dict[Subject, list[float]]:
    """What each subject took in each round."""
    verdict, callers = cell
    spent: dict[Subject, list[float]] = {subject: [] for subject in subjects}
    with ExitStack() as stack:
        workers: dict[Subject, Worker] = {}
        for name, threads in subjects:
            worker = Worker([*command, name, str(threads), str(callers), verdict])
            stack.callback(worker.end)
            workers[name, threads] = worker
        for worker in workers.values():
            worker.hear()
        turns = list(subjects)
        for number in range(WARM_UP_ROUNDS + ROUNDS):
            for subject in turns:
                ns = workers[subject].turn_ns(number)
                if number >= WARM_UP_ROUNDS:
                    spent[subject].append(ns)
            turns.reverse()
    return spent


def table(language: str, command: list[str]) -> str:
    listed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    subjects: list[Subject] = [(name, threads) for name, threads in json.loads(listed)]
    cells = [(verdict, callers) for verdict in VERDICTS for callers in CALLERS]
    rows = {subject: [_label(subject)] for subject in subjects}
    for verdict, callers in cells:
        say(f"{language}: {verdict}, {callers:,} callers ...")
        spent = measure(command, subjects, (verdict, callers))
        for (name, threads), ns in spent.items():
            text = f"{median(ns):,.0f}"
            if name != US:
                pairs = zip(spent[US, threads], ns, strict=True)
                text += f" ({median(us / them for us, them in pairs):.2f})"
            rows[name, threads].append(text)
    head = [f"{language}, ns", *(f"{verdict} {callers:,}" for verdict, callers in cells)]
    lines = [head, ["---"] * len(head), *rows.values()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _label(subject: Subject) -> str:
    name, threads = subject
    return name if threads == 1 else f"{name}, {threads} threads"


def processor() -> str:
    try:
        with open("/proc/cpuinfo") as info:
            return next(line.split(":")[1].strip() for line in info if "model name" in line)
    except (OSError, StopIteration):
        return platform.machine()


def main() -> None:
    tables = []
    for argument in sys.argv[1:]:
        language, _, command = argument.partition("=")
        tables.append(table(language, shlex.split(command)))
    print(f"{processor()}, {platform.system()} {platform.release()}.")
    print(f"Median nanoseconds per decision; in brackets, {US}'s over that peer's.\n")
    print("\n\n".join(tables))


if __name__ == "__main__":
    main()
