"""The servers that the suite drives, and how each is started. README.md says what they have to do."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILT = HERE.parents[1] / "target" / "e2e"

NEWEST = "2026-07-28"


@dataclass(frozen=True)
class Server:
    """One of them."""

    name: str
    command: tuple[str, ...]
    version: str
    """The newest version of the protocol that its SDK speaks."""
    needs: Path
    """What is there once it was built."""

    @property
    def is_built(self) -> bool:
        return self.needs.exists()


SERVERS = {
    server.name: server
    for server in (
        Server(
            "python",
            (sys.executable, str(HERE / "python" / "server.py")),
            NEWEST,
            needs=HERE / "python" / "server.py",
        ),
        Server(
            "typescript-1",
            ("node", str(HERE / "node" / "typescript-1.mjs")),
            "2025-11-25",
            needs=HERE / "node" / "node_modules",
        ),
        Server(
            "typescript-2",
            ("node", str(HERE / "node" / "typescript-2.mjs")),
            NEWEST,
            needs=HERE / "node" / "node_modules",
        ),
        Server("go", (str(BUILT / "go"),), NEWEST, needs=BUILT / "go"),
        Server("mcp-go", (str(BUILT / "mcp-go"),), "2025-11-25", needs=BUILT / "mcp-go"),
    )
}


def named(argument: str) -> Server:
    """The server `NAME`, or `NAME=COMMAND` to start it in another way."""
    name, _, command = argument.partition("=")
    if name not in SERVERS:
        raise ValueError(f"no server {name!r}; there are {', '.join(SERVERS)}")
    if not command:
        return SERVERS[name]
    return replace(SERVERS[name], command=tuple(shlex.split(command)), needs=HERE)
