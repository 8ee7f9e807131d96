"""Starts a server as a process of its own, and ends it: for the tests and for the demo."""

from __future__ import annotations

import queue
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 10


@contextmanager
def running_server(command: Sequence[str]) -> Iterator[str]:
    """The base URL of a fresh server, which ends with the `with` block, or with this process."""
    # The pipe to its standard input is what ties the server's life to ours, even to a violent end.
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield _first_line(process)
    finally:
        _stop(process)


def _first_line(process: subprocess.Popen[str]) -> str:
    lines: queue.Queue[str] = queue.Queue()
    assert process.stdout is not None
    reader = threading.Thread(target=lambda: lines.put(process.stdout.readline()), daemon=True)
    reader.start()
    try:
        line = lines.get(timeout=START_TIMEOUT_S).strip()
    except queue.Empty:
        raise TimeoutError(f"the server said nothing for {START_TIMEOUT_S} s") from None
    if not line:
        raise RuntimeError(f"the server ended at start, with status {process.wait(STOP_TIMEOUT_S)}")
    return line


def _stop(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_TIMEOUT_S)
    process.stdout.close()
