"""Reads a JSON-RPC body as the MCP SDKs read it, and says which tool calls it holds.

The SDKs have two readers, one per protocol era, and they differ: `json.loads` on bytes also accepts
UTF-16, UTF-32, a byte order mark and encoded surrogates, where jiter accepts UTF-8 only. So the
rule here is the part on which every reader agrees: what this module can read, any of them reads in
the same way or rejects; what it cannot read is refused instead of guessed at.

Pure functions; nothing here knows of HTTP, of a gate or of a clock.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, Final

METERED_METHOD: Final = "tools/call"
METERED_METHODS: Final = frozenset({METERED_METHOD})

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600

RequestId = str | int | float
"""An id as JSON-RPC has it. Echoed with its type: `7` and `"7"` are two different ids."""


class UnreadableMessage(ValueError):
    """The body is not one unambiguous JSON text, so that what a server would run is not known.

    `code` is the JSON-RPC error code to answer with.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Entry:
    """One metered message, or one of a batch.

    `tool` is None where a call names none (the server will turn it away, but a malformed call is
    not a free one), and for every other method. `is_continuation`: it says that it goes on with a
    call of several rounds, which anybody can say.
    """

    tool: str | None = None
    method: str = METERED_METHOD
    is_continuation: bool = False


@dataclass(frozen=True, slots=True)
class ToolCalls:
    """The metered part of one JSON-RPC message or batch.

    `entries` has one item per `tools/call` entry, and per entry of another metered method, in
    order. `request_id` is the id a refusal echoes: None for a batch, and where the message has no
    valid id.
    """

    entries: tuple[Entry, ...]
    request_id: RequestId | None
    is_batch: bool

    @property
    def tools(self) -> tuple[str | None, ...]:
        """The tools that are called, in order."""
        return tuple(entry.tool for entry in self.entries)

    @property
    def cost(self) -> int:
        """Tokens to charge: one per metered entry."""
        return len(self.entries)


class _RepeatedKeys(dict[str, Any]):
    """A JSON object in which a name occurs twice: readers disagree on which value counts."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    return plain if len(plain) == len(pairs) else _RepeatedKeys(plain)


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object)


def parse(body: bytes | bytearray) -> Any:
    """The JSON value of `body`; raises `UnreadableMessage` for anything but one UTF-8 JSON text."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise UnreadableMessage(PARSE_ERROR, "Parse error: the body is not UTF-8") from None
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        # ValueError covers bad syntax and integers beyond what Python converts; RecursionError,
        # nesting. The text is not quoted: it is the caller's data, and may hold secrets.
        raise UnreadableMessage(PARSE_ERROR, "Parse error: the body is not valid JSON") from None


def tool_calls(message: Any, methods: Set[str] = METERED_METHODS) -> ToolCalls | None:
    """The entries of a parsed message or batch that call one of `methods`; None without any.

    An entry counts by its method alone, whatever else is wrong with it, so that there is no
    malformation that one reader forgives and that is not counted here.
    """
    is_batch = isinstance(message, list)
    entries = message if is_batch else [message]
    calls = [entry for entry in entries if _is_metered(entry, methods)]
    if not calls:
        return None
    request_id = None if is_batch else echoed_id(calls[0].get("id"))
    metered = tuple(entry_of(call["method"], call.get("params")) for call in calls)
    return ToolCalls(metered, request_id, is_batch)


def entry_of(method: str, params: Any) -> Entry:
    """The entry for a message with these parameters, of whatever type they are."""
    if method != METERED_METHOD:
        return Entry(method=method)
    if not isinstance(params, Mapping):
        return Entry()
    return Entry(
        tool=tool_name(params.get("name")),
        is_continuation=params.get("inputResponses") is not None,
    )


def tool_name(value: Any) -> str | None:
    """`value` if a tool can have it for a name: JSON can also spell halves of characters, which
    the gate can't take, and no name must keep a call from being charged."""
    if not isinstance(value, str) or not value:
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return value


def _is_metered(entry: Any, methods: Set[str]) -> bool:
    if not isinstance(entry, dict):
        return False
    if isinstance(entry, _RepeatedKeys):
        raise UnreadableMessage(
            INVALID_REQUEST, "Invalid request: a name occurs twice in the message"
        )
    method = entry.get("method")
    if not isinstance(method, str) or method not in methods:
        return False
    if isinstance(entry.get("params"), _RepeatedKeys):
        raise UnreadableMessage(
            INVALID_REQUEST, "Invalid request: a name occurs twice in the parameters"
        )
    return True


def echoed_id(value: Any) -> RequestId | None:
    """`value` if JSON-RPC can carry it as an id, else None (null, booleans, structures, NaN)."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int) else None
