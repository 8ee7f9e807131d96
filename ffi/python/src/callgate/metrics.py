"""A gate's metrics: OpenMetrics text, and an ASGI app that serves it.

    app = metrics_app(gate)        # GET /metrics

`callgate.prometheus` hands the same to `prometheus_client`. No label ever holds an identity: labels
are the names of policies and limits, reasons, and states of the table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from callgate.gate import Gate

END: Final = "# EOF\n"
CONTENT_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

Kind: TypeAlias = Literal["counter", "gauge"]
Labels: TypeAlias = dict[str, str]
Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class Family:
    """One metric: its name (a counter's without `_total`), and its samples."""

    name: str
    kind: Kind
    help: str
    samples: list[tuple[Labels, int]] = field(default_factory=list)


GUARDS: Final[tuple[tuple[str, str, Kind, str], ...]] = (
    ("in_flight", "callgate_in_flight", "gauge", "Calls that hold a place"),
    ("open", "callgate_breaker_open", "gauge", "Breakers that are open"),
    ("half_open", "callgate_breaker_half_open", "gauge", "Breakers that are half-open"),
    ("trips", "callgate_breaker_trips", "counter", "How often a breaker opened"),
    ("lapsed", "callgate_permits_lapsed", "counter", "Permits settled after their lease"),
)
"""The attribute of `Guards`, the metric's name, its kind, its help."""


def families_of(
    *gates: Gate, now_ns: int | None = None, unix_ns: int | None = None
) -> list[Family]:
    """The metrics of the gates, as the core tells them in `Gate.metrics`. Where there are several,
    the label `gate` is their place."""
    families = [
        Family("callgate_decisions", "counter", "Calls decided, by policy, limit and reason"),
        *(Family(name, kind, text) for _, name, kind, text in GUARDS),
        Family("callgate_table_slots", "gauge", "Slots of the table, by what they hold"),
        internal_errors_of(),
    ]
    for place, gate in enumerate(gates):
        common: Labels = {"gate": str(place)} if len(gates) > 1 else {}
        for family, labels, value in _samples_of(gate, now_ns, unix_ns):
            at = next(f for f in families if f.name == family)
            at.samples.append(({**common, **labels}, value))
    return families


def internal_errors_of(gate: Gate | None = None) -> Family:
    """What the core can't know: how often the limiter itself has failed."""
    family = Family("callgate_internal_errors", "counter", "Failures of the limiter itself")
    if gate is not None:
        family.samples.append(({}, gate.internal_errors))
    return family


def _samples_of(
    gate: Gate, now_ns: int | None, unix_ns: int | None
) -> Iterator[tuple[str, Labels, int]]:
    stats = gate.stats(now_ns, unix_ns)
    for (policy, by, reason), count in stats.decisions.items():
        labels = {"policy": policy, "limit": by or "", "reason": reason or "admitted"}
        yield "callgate_decisions", labels, count
    for limit, guards in gate.all_guards(now_ns).items():
        for attribute, metric, _, _ in GUARDS:
            yield metric, {"limit": limit}, getattr(guards, attribute)
    for state in ("live", "at_rest", "claimed", "empty"):
        yield "callgate_table_slots", {"state": state}, getattr(stats, state)
    yield "callgate_internal_errors", {}, gate.internal_errors


def text_of(families: list[Family]) -> str:
    """The metrics as OpenMetrics text."""
    lines: list[str] = []
    for family in families:
        lines.append(f"# HELP {family.name} {family.help}.")
        lines.append(f"# TYPE {family.name} {family.kind}")
        suffix = "_total" if family.kind == "counter" else ""
        lines += [f"{family.name}{suffix}{_labels(ls)} {value}" for ls, value in family.samples]
    return "\n".join([*lines, END])


def _labels(labels: Labels) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def metrics_app(*gates: Gate) -> App:
    """An ASGI app that serves the metrics of the gates on GET /metrics, and at the path that it is
    mounted at. Others get 404, other methods 405."""
    if not gates:
        raise TypeError("metrics_app needs 1 or more gates")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        elif not _is_ours(scope):
            await _respond(send, 404, "there is nothing here but /metrics\n")
        elif scope["method"] not in ("GET", "HEAD"):
            await _respond(send, 405, "GET or HEAD\n", (b"allow", b"GET, HEAD"))
        else:
            text = gates[0].metrics() if len(gates) == 1 else text_of(families_of(*gates))
            await _respond(send, 200, text, type_=CONTENT_TYPE, head=scope["method"] == "HEAD")

    return app


def _is_ours(scope: Scope) -> bool:
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path.removeprefix(root) in ("", "/", "/metrics")


async def _live(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return


async def _respond(
    send: Send,
    status: int,
    text: str,
    *headers: tuple[bytes, bytes],
    type_: str = "text/plain; charset=utf-8",
    head: bool = False,
) -> None:
    body = text.encode()
    fields = [(b"content-type", type_.encode()), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": b"" if head else body})
