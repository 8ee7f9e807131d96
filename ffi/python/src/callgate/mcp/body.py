"""Reads a request body once, within a bound, and plays it back to the application."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from callgate.mcp.asgi_types import Message, Receive
from callgate.mcp.beside import Event

Headers = Iterable[tuple[bytes, bytes]]


_MAX_LENGTH_DIGITS: Final = 18


class BodyTooLarge(Exception):
    """The body is, or says it is, larger than the bound."""


class ClientGone(Exception):
    """The client disconnected before its request was complete."""


async def read_body(receive: Receive, headers: Headers, max_bytes: int) -> bytes:
    """The whole body, however it is chunked; never holds more than `max_bytes` and one chunk."""
    declared = header(headers, b"content-length")
    if declared is not None and declared.isdigit() and _exceeds(declared, max_bytes):
        raise BodyTooLarge
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        chunk = message.get("body", b"")
        if len(body) + len(chunk) > max_bytes:
            raise BodyTooLarge
        body += chunk
        if not message.get("more_body", False):
            return bytes(body)


def _exceeds(digits: bytes, bound: int) -> bool:
    # Their number is looked at first: Python refuses to convert thousands of digits.
    return len(digits) > _MAX_LENGTH_DIGITS or int(digits) > bound


def header(headers: Headers, name: bytes) -> bytes | None:
    """The first field of that (lower-case) name."""
    return next((value for key, value in headers if key.lower() == name), None)


def may_be_json(headers: Headers) -> bool:
    """Whether any MCP server would read this request's body as JSON, going by its content type.

    Looser than each of the SDKs' own predicates (one wants a value that begins with
    `application/json`, the other a list item that equals it, and both look at the first field
    only), so that no spelling is JSON to a server and something else here.
    """
    return any(
        item.strip().lower().startswith(b"application/json")
        for key, value in headers
        if key.lower() == b"content-type"
        for item in value.split(b",")
    )


def is_encoded(headers: Headers) -> bool:
    """Whether the body comes compressed, or in any other content coding."""
    return any(
        value.strip().lower() not in (b"", b"identity")
        for key, value in headers
        if key.lower() == b"content-encoding"
    )


class Replay:
    """A `receive` that hands out the body already read, then whatever the server says next.

    `client_gone` becomes true when the server has said that the client is.
    """

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive
        self._heard: Event | None = None
        self._ahead: Message | None = None
        self._error: Exception | None = None
        self.client_gone = False

    async def __call__(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        if self._heard is not None:
            await self._heard.wait()
            if self.client_gone:
                return {"type": "http.disconnect"}
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            if self._ahead is not None:
                message, self._ahead = self._ahead, None
                return message
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.client_gone = True
        return message

    async def watch(self, on_gone: Callable[[], None], heard: Event) -> None:
        """Ask the server what it says next before the application does: an application that never
        asks never learns that its client is gone.

        After the body a server has nothing else to say. Should it, the application gets that, and
        asks for itself from then on.
        """
        self._heard = heard
        try:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.client_gone = True
                on_gone()
            else:
                self._ahead = message
        except Exception as error:
            self._error = error
        finally:
            heard.set()
