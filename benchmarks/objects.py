"""Ten thousand small objects from an S3 server on loopback that takes 20 ms to answer.

The server (`objects_server`) is a small one, in a process of its own, so that it is not what is
measured. Everybody reads the same objects once, in order, as batches of their bytes. The listing is
part of the time of all but the reader by hand, which knows the names.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.objects_server import BUCKET
from benchmarks.workload import BATCH, Contestant, Open, Target, Workload

_SIZE = 16 << 10
_DELAY = 0.02
_BUDGET = 256 << 20
_SEQUENTIAL = 0.02
"""The share of the objects that is enough to know the rate of who reads one after the other."""


@contextmanager
def setting(quick: bool) -> Iterator[dict[str, Any]]:
    rows = 1_000 if quick else 10_000
    with serving(rows, _SIZE, _DELAY) as port:
        yield {"port": port, "rows": rows}


@contextmanager
def serving(*arguments: float) -> Iterator[int]:
    """The port of a server, by its arguments."""
    command = [sys.executable, "-m", "benchmarks.objects_server", *map(str, arguments)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield int(server.stdout.readline())
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def environment(port: int) -> None:
    os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{port}"
    os.environ["AWS_ACCESS_KEY_ID"] = os.environ["AWS_SECRET_ACCESS_KEY"] = "benchmark"
    os.environ["AWS_REGION"] = "us-east-1"


def names(rows: int) -> list[str]:
    return [f"{BUCKET}/train/{i:06d}.bin" for i in range(rows)]


def silva(port: int, rows: int) -> Open:
    import obstore  # noqa: F401  imported before the clock starts, as torch is

    import silva as sv

    _ = sv.Loader
    environment(port)
    photos = sv.read_files(f"s3://{BUCKET}/train/*.bin").take(rows).select("bytes").batch(BATCH)

    def batches() -> Iterator[list[bytes]]:
        with photos.loader(memory=_BUDGET) as loader:
            for batch in loader:
                yield list(batch["bytes"])

    return batches


def by_hand(port: int, rows: int) -> Open:
    """One connection, one request after the other."""
    import http.client

    def batches() -> Iterator[list[bytes]]:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        held = []
        for name in names(rows):
            connection.request("GET", f"/{name}")
            held.append(connection.getresponse().read())
            if len(held) == BATCH:
                yield held
                held = []
        if held:
            yield held
        connection.close()

    return batches


def connected(port: int) -> Any:
    import s3fs

    return s3fs.S3FileSystem(
        key="benchmark",
        secret="benchmark",
        endpoint_url=f"http://127.0.0.1:{port}",
        config_kwargs={"max_pool_connections": 128},
        skip_instance_cache=True,
    )


def s3fs_loader(port: int, rows: int, together: bool) -> Open:
    """s3fs in a DataLoader of two workers, one object at a time, or a batch at once."""
    import torch.utils.data

    connect = functools.partial(connected, port)

    class Photos(torch.utils.data.Dataset):
        files: Any = None

        def __init__(self) -> None:
            self.paths = sorted(connect().ls(f"{BUCKET}/train"))[:rows]

        def __len__(self) -> int:
            return len(self.paths)

        def __getitem__(self, place: int) -> bytes:
            return self._files().cat_file(self.paths[place])

        def _files(self) -> Any:
            if self.files is None:
                self.files = connect()
            return self.files

    class Together(Photos):
        def __getitems__(self, places: list[int]) -> list[bytes]:
            paths = [self.paths[place] for place in places]
            found = self._files().cat(paths)
            return [found[path] for path in paths]

    def batches() -> Any:
        return torch.utils.data.DataLoader(
            Together() if together else Photos(),
            batch_size=BATCH,
            num_workers=2,
            collate_fn=list,
        )

    return batches


def s3fs_one(port: int, rows: int) -> Open:
    return s3fs_loader(port, rows, together=False)


def s3fs_together(port: int, rows: int) -> Open:
    return s3fs_loader(port, rows, together=True)


def hugging_face(port: int, rows: int) -> Open:
    """A stream of names whose objects are fetched by `map`, a batch at once, in two workers.

    Its builders for files (imagefolder and its like) give names of objects, too, and leave their
    bytes to who reads the stream.
    """
    import datasets
    import torch.utils.data

    @functools.cache
    def files_of(process: int) -> Any:
        return connected(port)

    def fetch(paths: list[str]) -> dict[str, list[bytes]]:
        found = files_of(os.getpid()).cat(paths)
        return {"bytes": [found[path] for path in paths]}

    def batches() -> Iterator[list[bytes]]:
        paths = sorted(connected(port).ls(f"{BUCKET}/train"))[:rows]
        names = datasets.Dataset.from_dict({"path": paths}).to_iterable_dataset(num_shards=2)
        stream = names.map(
            fetch,
            input_columns="path",
            batched=True,
            batch_size=BATCH,
            remove_columns="path",
            features=datasets.Features({"bytes": datasets.Value("binary")}),
        )
        loader = torch.utils.data.DataLoader(
            stream, batch_size=BATCH, num_workers=2, collate_fn=list
        )
        for rows_read in loader:
            yield [row["bytes"] for row in rows_read]

    return batches


def checksum(batch: list[bytes]) -> float:
    return float(sum(data[0] + data[-1] for data in batch))


ONE, TOGETHER = "s3fs + DataLoader(2)", "s3fs + DataLoader(2), a batch at once"
STREAM = "HF datasets streaming + DataLoader(2)"

WORKLOAD = Workload(
    name="objects",
    title=f"Objects of {_SIZE >> 10} KiB from S3 on loopback, {_DELAY * 1000:.0f} ms to answer",
    setting=setting,
    contestants=(
        Contestant("silva", silva),
        Contestant("one after the other", by_hand, share=_SEQUENTIAL, group="part"),
        Contestant(ONE, s3fs_one, share=_SEQUENTIAL, group="part", environment="s3fs", long=True),
        Contestant(TOGETHER, s3fs_together, environment="s3fs", long=True),
        Contestant(STREAM, hugging_face, environment="s3fs", long=True),
    ),
    targets=(
        Target("silva", at_least=10, of="one after the other"),
        Target("silva", at_least=1, of=(ONE, TOGETHER, STREAM)),
        Target("silva", at_most=_BUDGET, metric="peak"),
    ),
    checksum=checksum,
    rounds=3,
)
