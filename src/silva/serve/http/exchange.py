"""What an ASGI server hands over for one request: its body, and that its client has hung up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any, TypeVar

T = TypeVar("T")
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class HungUp(Exception):
    """The client has closed the connection: nobody reads a reply."""


class TooLong(Exception):
    """The body of a request is longer than allowed."""


async def read_body(receive: Receive, most: int) -> bytes:
    """The body of a request."""
    message = await _piece(receive)
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        pieces = bytearray(body)
        while message.get("more_body") and len(pieces) <= most:
            message = await _piece(receive)
            pieces += message.get("body", b"")
        body = bytes(pieces)
    if len(body) > most:
        raise TooLong
    return body


async def _piece(receive: Receive) -> MutableMapping[str, Any]:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise HungUp
    return message


async def unless_hung_up(receive: Receive, answer: Coroutine[Any, Any, T]) -> T:
    """What `answer` returns. It is cancelled when the client hangs up."""
    loop = asyncio.get_running_loop()
    own = asyncio.current_task()
    assert own is not None
    has_hung_up = False

    async def watch() -> None:
        nonlocal has_hung_up
        while (await receive())["type"] != "http.disconnect":
            pass
        has_hung_up = True
        own.cancel()

    watching = loop.create_task(watch())
    try:
        return await answer
    except asyncio.CancelledError:
        if not has_hung_up:
            raise
        own.uncancel()
        raise HungUp from None
    finally:
        watching.cancel()
