"""Replies as server-sent events: the text of the last step as it is generated, then the whole row.

    event: text      data: {"answer": "a piece"}
    event: restart   data: {}: the text so far is void, since the model was asked anew
    event: row       data: the same JSON as without events
    event: error     data: the same JSON as without events; only after a text

All pieces after the last restart are the text of the row. A request that fails before its first
text gets the same reply as without events.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Hashable, Iterable

import msgspec

from silva.plan import expr
from silva.serve.engine.units import Unit
from silva.serve.http.exchange import Send
from silva.serve.http.replies import Reply
from silva.serve.models.errors import Abandoned

ACCEPTED = b"text/event-stream"
_HEADERS = ((b"content-type", ACCEPTED), (b"cache-control", b"no-store"))


class Spoken:
    """The column whose text is generated last, and the step that does so."""

    def __init__(self, column: str, step: Hashable) -> None:
        self.column = column
        self.step = step

    @staticmethod
    def of(units: Iterable[Unit], columns: Iterable[str]) -> Spoken | None:
        """That of a pipeline; None if its last step is not a model that generates text."""
        working = [unit for unit in units if unit.step.writes or unit.step.runs is not None]
        runs = working[-1].step.runs if working else None
        if not isinstance(runs, expr.Call) or runs.op not in ("model.generate", "model.sample"):
            return None
        params, (column, *more) = dict(runs.params), working[-1].step.writes
        if more or column not in columns or params["settings"].schema is not None:
            return None
        return Spoken(column, (params["model"].identity, params["prompt"], params["settings"]))


class Events:
    """The events of one request."""

    def __init__(self, send: Send, request: str, spoken: Spoken | None) -> None:
        self.spoken = spoken
        self._send = send
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._waiting: list[str] = []
        self._writing: asyncio.Task[None] | None = None
        self._text = ""
        self._has_begun = False
        self._has_ended = False

    def hear(self, piece: str) -> None:
        """Takes a piece of text, on any thread. Raises `Abandoned` once nobody listens any more."""
        if self._has_ended:
            raise Abandoned("the client has hung up")
        with contextlib.suppress(RuntimeError):  # the loop was closed
            self._loop.call_soon_threadsafe(self._arrived, piece)

    def _arrived(self, piece: str) -> None:
        if self._has_ended:
            return
        self._waiting.append(piece)
        if self._writing is None or self._writing.done():
            self._writing = self._loop.create_task(self._write())

    async def _write(self) -> None:
        """Writes what waits, as much as there is at a time."""
        while self._waiting:
            piece, self._waiting = "".join(self._waiting), []
            await self._say(piece)

    async def end(self, reply: Reply) -> bool:
        """Writes the rest; False if nothing was written, so that an ordinary reply is due."""
        self._has_ended = True
        if self._writing is not None:
            await self._writing
        if reply.status != 200:
            if not self._has_begun:
                return False
            await self._event(b"error", reply.body)
        else:
            await self._say_rest(reply)
            await self._event(b"row", reply.body)
        await self._send({"type": "http.response.body", "body": b""})
        return True

    def close(self) -> None:
        """Nobody reads any more."""
        self._has_ended = True
        self._waiting.clear()
        if self._writing is not None:
            self._writing.cancel()

    async def _say_rest(self, reply: Reply) -> None:
        if self.spoken is None:
            return
        text = msgspec.json.decode(reply.body).get(self.spoken.column)
        if not isinstance(text, str):
            return
        if not text.startswith(self._text):
            await self._event(b"restart", b"{}")
            self._text = ""
        if len(text) > len(self._text):
            await self._say(text[len(self._text) :])

    async def _say(self, piece: str) -> None:
        assert self.spoken is not None
        self._text += piece
        await self._event(b"text", msgspec.json.encode({self.spoken.column: piece}))

    async def _event(self, kind: bytes, data: bytes) -> None:
        if not self._has_begun:
            self._has_begun = True
            headers = [*_HEADERS, (b"x-request-id", self._request.encode())]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        body = b"event: %s\ndata: %s\n\n" % (kind, data)
        await self._send({"type": "http.response.body", "body": body, "more_body": True})
