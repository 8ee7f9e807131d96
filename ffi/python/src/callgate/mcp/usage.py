"""What a call has used up: reported by the tool itself, or read from its result's `_meta`."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final

from callgate.mcp.asgi_types import Message
from callgate.mcp.body import header

MAX_UNITS: Final = 2**64 - 1
"""As much as the engine takes: more is counted as this many."""

MAX_READ_BYTES: Final = 4 * 1024 * 1024
"""How much of a response is searched for the units that it states."""


class Usage:
    """The units that the calls of one message have used, as far as anybody has said.

    What a result states is the whole of it, and is taken in place of what the tool reported.
    """

    __slots__ = ("_lock", "_reported", "_stated", "is_over")

    def __init__(self) -> None:
        # A tool may report from threads of its own.
        self._lock = threading.Lock()
        self._reported: int | None = None
        self._stated: int | None = None
        self.is_over = False

    def report(self, units: int) -> bool:
        """Whether that still counts."""
        with self._lock:
            if not self.is_over:
                self._reported = (self._reported or 0) + units
            return not self.is_over

    def state(self, units: int) -> None:
        """What one result states; a batch has several, which add up."""
        with self._lock:
            self._stated = (self._stated or 0) + units

    def state_all(self, units: int) -> None:
        """What all results of the message state together, whoever has read some of them before."""
        with self._lock:
            self._stated = units

    @property
    def reported(self) -> int:
        return self._reported or 0

    @property
    def total(self) -> int | None:
        """None where nobody has said anything."""
        units = self._reported if self._stated is None else self._stated
        return None if units is None else min(units, MAX_UNITS)

    def end(self) -> int | None:
        """The total, after which nothing is counted any more."""
        with self._lock:
            self.is_over = True
        return self.total

    @contextmanager
    def current(self) -> Iterator[None]:
        """In this block, and in whatever it starts, `report_usage` counts here."""
        outer = _current.get()
        if self in outer:
            yield
            return
        token = _current.set((*outer, self))
        try:
            yield
        finally:
            # A coroutine that is closed from elsewhere ends in another context.
            with suppress(ValueError):
                _current.reset(token)


_current: ContextVar[tuple[Usage, ...]] = ContextVar("callgate_usage", default=())


def report_usage(units: int) -> bool:
    """Say, from within a tool, that its call has used up so many units more of its quotas.

    It counts when the call ends; until then the call has set aside its `reserve`, which is also
    what it costs where nothing is said. Works in the tool's own task or thread and in what it
    starts from there (`asyncio.to_thread` and tasks; a bare thread has no context).

    Returns whether it counts: False outside of a metered call, and once that is over. Behind
    `protect` alone it is over when the client is gone, even where the tool runs on: with the SDK's
    middleware on the same gate, when the handler has ended. Raises `ValueError` where `units` is
    below zero.
    """
    if isinstance(units, bool) or not isinstance(units, int):
        raise TypeError(f"units must be an int, not {type(units).__name__}")
    if units < 0:
        raise ValueError(f"units must be 0 or more, not {units}")
    counted = [call.report(units) for call in _current.get()]
    return any(counted)


def usage() -> int:
    """The units that were reported so far in the present call; 0 outside of one."""
    calls = _current.get()
    return calls[-1].reported if calls else 0


def stated_units(result: Any, key: str) -> int | None:
    """The units that a result states under `key` of its `_meta`: a result of either SDK, or JSON.

    None where it states none, or anything but a whole number from zero on.
    """
    meta = result.get("_meta") if isinstance(result, Mapping) else getattr(result, "meta", None)
    units = meta.get(key) if isinstance(meta, Mapping) else None
    if isinstance(units, bool) or not isinstance(units, int) or units < 0:
        return None
    return units


class ResponseReader:
    """Finds, in a response that passes by, the units that its results state.

    Reads JSON and event streams, and of each at most `MAX_READ_BYTES` at a time; it changes
    nothing and fails on nothing.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._pending = bytearray()
        self._is_readable = False
        self._is_stream = False
        self.units: int | None = None

    def read(self, message: Message) -> None:
        """Takes in what the application sends."""
        if message["type"] == "http.response.start":
            kind = (header(message.get("headers", ()), b"content-type") or b"").split(b";")[0]
            self._is_stream = kind.strip().lower() == b"text/event-stream"
            self._is_readable = self._is_stream or kind.strip().lower() == b"application/json"
        elif message["type"] == "http.response.body" and self._is_readable:
            self._feed(message.get("body", b""), is_last=not message.get("more_body", False))

    def _feed(self, chunk: bytes, *, is_last: bool) -> None:
        self._pending += chunk
        if self._is_stream:
            *lines, self._pending = self._pending.replace(b"\r", b"\n").split(b"\n")
            for line in lines:
                if line.startswith(b"data:"):
                    self._take(line[5:])
        elif is_last:
            self._take(self._pending)
        if len(self._pending) > MAX_READ_BYTES:
            self._is_readable = False
            self._pending.clear()

    def _take(self, text: bytearray) -> None:
        if b"_meta" not in text:
            return
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            return
        for entry in message if isinstance(message, list) else [message]:
            if isinstance(entry, dict):
                units = stated_units(entry.get("result"), self._key)
                if units is not None:
                    self.units = (self.units or 0) + units
