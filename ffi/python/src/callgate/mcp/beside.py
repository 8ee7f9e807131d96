"""Something that runs beside an application, in the event loops of asyncio and of trio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol

from callgate.loops import is_in_asyncio, running_trio


class Event(Protocol):
    """What both have under this name."""

    def set(self) -> object: ...

    async def wait(self) -> object: ...


async def run_beside(
    app: Callable[[], Awaitable[None]], beside: Callable[[Event], Awaitable[None]]
) -> None:
    """Run `app`, and `beside` for as long as that runs: it is cancelled then, and has ended when
    this returns. It must raise nothing of its own, and gets an event of the framework's.

    What `app` raises leaves as it is. In an event loop of another kind `app` runs alone.
    """
    trio = running_trio()
    if is_in_asyncio():
        await _run_in_asyncio(app, beside)
    elif trio is not None:
        await _run_in_trio(trio, app, beside)
    else:
        await app()


async def _run_in_asyncio(
    app: Callable[[], Awaitable[None]], beside: Callable[[Event], Awaitable[None]]
) -> None:
    async def run() -> None:
        await beside(asyncio.Event())

    task = asyncio.get_running_loop().create_task(run())
    try:
        await app()
    except GeneratorExit:
        # Closed from elsewhere, where nothing can be waited for, and the loop may be closed too.
        with suppress(RuntimeError):
            task.cancel()
        raise
    except BaseException:
        await _end(task)
        raise
    await _end(task)


async def _end(task: asyncio.Task[None]) -> None:
    if not task.done():
        task.cancel()
        await asyncio.wait([task])


async def _run_in_trio(
    trio: Any, app: Callable[[], Awaitable[None]], beside: Callable[[Event], Awaitable[None]]
) -> None:
    async def run() -> None:
        # Else it would leave the nursery in a group, where the application is cancelled.
        with suppress(trio.Cancelled):
            await beside(trio.Event())

    raised: BaseException | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        try:
            await app()
        except BaseException as error:
            # Raised outside of the nursery, which would make a group of it.
            raised = error
        nursery.cancel_scope.cancel()
    if raised is not None:
        try:
            raise raised
        finally:
            del raised
