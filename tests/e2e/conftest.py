"""Which servers the tests run against, and their processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from harness import running_server
from servers import SERVERS, Server, named

Urls = Callable[[str], str]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--server",
        action="append",
        metavar="NAME[=COMMAND]",
        help=f"one of {', '.join(SERVERS)}; may be repeated; default: all that are built",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server" in metafunc.fixturenames:
        asked_for = metafunc.config.getoption("--server")
        servers = [named(argument) for argument in asked_for or SERVERS]
        # In CI nothing is skipped: what is missing fails at its start.
        may_skip = not asked_for and not os.environ.get("CI")
        params = [_param(server, may_skip) for server in servers]
        metafunc.parametrize("server", params, scope="module")


def _param(server: Server, may_skip: bool) -> object:
    skip = pytest.mark.skip(reason=f"{server.name} is not built: no {server.needs}")
    marks = [skip] if may_skip and not server.is_built else []
    return pytest.param(server, id=server.name, marks=marks)


@pytest.fixture(scope="module")
def urls(server: Server) -> Iterator[Urls]:
    """The base URL of the process with a label: started when it is first asked for."""
    started: dict[str, str] = {}
    with ExitStack() as stack:

        def url(label: str) -> str:
            if label not in started:
                started[label] = stack.enter_context(running_server(server.command))
            return started[label]

        yield url
