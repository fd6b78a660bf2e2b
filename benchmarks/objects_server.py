"""`python -m benchmarks.objects_server OBJECTS BYTES DELAY [RATE]`: a bucket, as S3 serves it.

GET (also of ranges), HEAD and LIST, each answered after a delay, on one event loop: a full S3
server has more to do for each request, and would be what is measured. All answers share a line of
RATE bytes a second, if there is one. Prints its port.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
import sys
from urllib.parse import parse_qs, unquote, urlsplit

BUCKET = "photos"
_PAGE = 1000
_DATE = "Mon, 16 Nov 2026 08:00:00 GMT"
_RANGE = re.compile(rb"\r\nrange: bytes=(\d+)-(\d+)", re.IGNORECASE)


def make(count: int, size: int) -> dict[str, bytes]:
    draw = random.Random(0)
    return {f"train/{i:06d}.bin": draw.randbytes(size) for i in range(count)}


class Line:
    """Sends one answer after the other, each as fast as it can."""

    def __init__(self, rate: float) -> None:
        self._rate, self._free_at = rate, 0.0

    def send(self, transport: asyncio.WriteTransport, data: bytes) -> None:
        if self._rate == float("inf"):
            transport.write(data)
            return
        loop = asyncio.get_running_loop()
        self._free_at = max(self._free_at, loop.time()) + len(data) / self._rate
        loop.call_at(self._free_at, transport.write, data)


class Connection(asyncio.Protocol):
    def __init__(self, objects: dict[str, bytes], delay: float, rate: float = float("inf")) -> None:
        self._line = Line(rate)
        self._objects = objects
        self._tags = {key: hashlib.md5(data).hexdigest() for key, data in objects.items()}
        self._delay = delay
        self._waiting = b""

    def __call__(self) -> Connection:
        """One more connection to the same bucket."""
        other = object.__new__(Connection)
        other.__dict__.update(self.__dict__)
        return other

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._waiting += data
        while b"\r\n\r\n" in self._waiting:
            head, _, self._waiting = self._waiting.partition(b"\r\n\r\n")
            asyncio.get_running_loop().call_later(self._delay, self._answer, head)

    def _answer(self, head: bytes) -> None:
        method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
        url = urlsplit(target)
        key = unquote(url.path).removeprefix(f"/{BUCKET}").lstrip("/")
        status, more = "200 OK", ""
        if not key:
            body = self._list({k: v[0] for k, v in parse_qs(url.query).items()})
        elif key not in self._objects:
            status, body = "404 Not Found", b""
        else:
            body = self._objects[key]
            more = f'ETag: "{self._tags[key]}"\r\n'
            part = _RANGE.search(head)
            if part:
                first, last = int(part[1]), min(int(part[2]), len(body) - 1)
                more += f"Content-Range: bytes {first}-{last}/{len(body)}\r\n"
                status, body = "206 Partial Content", body[first : last + 1]
        start = (
            f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nLast-Modified: {_DATE}\r\n"
            f"Accept-Ranges: bytes\r\n{more}\r\n"
        )
        answer = start.encode() + (body if method == "GET" else b"")
        self._line.send(self._transport, answer)

    def _list(self, query: dict[str, str]) -> bytes:
        prefix, after = query.get("prefix", ""), query.get("continuation-token", "")
        keys = [k for k in self._objects if k.startswith(prefix) and k > after]
        page, cut = keys[:_PAGE], len(keys) > _PAGE
        rows = "".join(
            f"<Contents><Key>{key}</Key><LastModified>2026-11-16T08:00:00.000Z</LastModified>"
            f"<ETag>&quot;{self._tags[key]}&quot;</ETag><Size>{len(self._objects[key])}</Size>"
            "<StorageClass>STANDARD</StorageClass></Contents>"
            for key in page
        )
        token = f"<NextContinuationToken>{page[-1]}</NextContinuationToken>" if cut else ""
        return (
            f'<?xml version="1.0"?><ListBucketResult><Name>{BUCKET}</Name><Prefix>{prefix}</Prefix>'
            f"<KeyCount>{len(page)}</KeyCount><MaxKeys>{_PAGE}</MaxKeys>"
            f"<IsTruncated>{str(cut).lower()}</IsTruncated>{token}{rows}</ListBucketResult>"
        ).encode()


async def serve(count: int, size: int, delay: float, rate: float = float("inf")) -> None:
    bucket = Connection(make(count, size), delay, rate)
    server = await asyncio.get_running_loop().create_server(bucket, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), *map(float, sys.argv[3:])))
