"""An S3 server on loopback, and a proxy before it that fails on purpose and keeps a record."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

BUCKET = "data"
_ANYBODY = (
    b"Authorization: AWS4-HMAC-SHA256 Credential=anybody/20260101/us-east-1/s3/aws4_request, "
    b"SignedHeaders=host, Signature=0"
)


@dataclass
class Seen:
    """A request that came by."""

    method: str
    path: str
    """With its query."""
    headers: dict[str, str]
    sent: int = 0
    """Bytes of the body that were handed on."""


@dataclass
class Proxy:
    """Hands requests on to a server, but for those that are to fail."""

    upstream: int
    port: int = 0
    faults: dict[str, deque[str]] = field(default_factory=lambda: defaultdict(deque))
    """By the end of a path: what happens to the next GETs of it, in turn. A status, `reset`,
    `silent` (no answer), `stall` (half an answer, then silence), `truncate` (half an answer)."""
    puts: deque[str] = field(default_factory=deque)
    """What happens to the next PUTs, in turn; also `lost` (it is done, but there is no answer)."""
    holds: bool = False
    """Whether PUTs wait."""
    always: str = ""
    """What happens to every request."""
    line: float = float("inf")
    """Bytes a second, of all answers together."""
    free_at: float = 0.0
    """When the line has sent what it was given."""
    seen: list[Seen] = field(default_factory=list)

    def gets(self, name: str = "") -> list[Seen]:
        gets = [seen for seen in self.seen if seen.method == "GET"]
        return [seen for seen in gets if seen.path.partition("?")[0].endswith(name)]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            await self._answer(head, reader, writer)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        first, *rest = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ")
        headers = dict(line.lower().split(": ", 1) for line in rest if ": " in line)
        seen = Seen(method, path, headers)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.seen.append(seen)
        fault = self.always or self._fault(method, path)
        if fault == "reset":
            writer.transport.abort()
            return
        if fault == "silent":
            await reader.read()
            return
        if fault.isdigit():
            said = b"<Error><AWSAccessKeyId>the-key-id</AWSAccessKeyId></Error>"
            writer.write(b"HTTP/1.1 %s No\r\nContent-Length: %d\r\n" % (fault.encode(), len(said)))
            writer.write(b"Connection: close\r\n\r\n" + said)
            return
        while self.holds and method == "PUT":
            await asyncio.sleep(0.005)
        answer = await self._upstream(head, body)
        if fault == "lost":
            writer.transport.abort()
            return
        start = answer.index(b"\r\n\r\n") + 4
        end = start + (len(answer) - start) // 2 if fault else len(answer)
        seen.sent = end - start
        now = asyncio.get_running_loop().time()
        self.free_at = max(self.free_at, now) + seen.sent / self.line
        await asyncio.sleep(self.free_at - now)
        writer.write(answer[:end])
        if fault == "stall":
            await writer.drain()
            await reader.read()

    def _fault(self, method: str, path: str) -> str:
        if method == "PUT":
            return self.puts.popleft() if self.puts else ""
        name = path.partition("?")[0].rpartition("/")[2]
        waiting = self.faults.get(name)
        return waiting.popleft() if method == "GET" and waiting else ""

    async def _upstream(self, head: bytes, body: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.upstream)
        dropped = (b"connection:", b"authorization: bearer")
        lines = [x for x in head.split(b"\r\n")[:-2] if not x.lower().startswith(dropped)]
        if not any(x.lower().startswith(b"authorization:") for x in lines):
            lines.append(_ANYBODY)  # who asks by another protocol
        writer.write(b"\r\n".join([*lines, b"Connection: close", b"", body]))
        answer = await reader.read()
        writer.close()
        return re.sub(rb"\r\nconnection: [^\r]*", b"", answer, count=1, flags=re.I).replace(
            b"\r\n", b"\r\nConnection: close\r\n", 1
        )


@contextmanager
def running(proxy: Proxy) -> Iterator[Proxy]:
    """Serves on a thread until the block ends."""
    ready, loop = threading.Event(), asyncio.new_event_loop()

    async def serve() -> None:
        server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
        proxy.port = server.sockets[0].getsockname()[1]
        ready.set()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.create_task(serve())
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)


def put(proxy: Proxy, objects: dict[str, bytes]) -> None:
    import obstore
    import obstore.store

    store = obstore.store.S3Store(
        BUCKET, endpoint=f"http://127.0.0.1:{proxy.upstream}", client_options={"allow_http": True}
    )
    for key, data in objects.items():
        obstore.put(store, key, data)
