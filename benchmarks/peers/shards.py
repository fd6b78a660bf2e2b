"""Peers that read files of their own making: written before the clock starts, from the same items.

Items are files here; `make` receives their bytes.
"""

from __future__ import annotations

import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.mapping import WORKERS, Job, Make
from benchmarks.workload import Open

_SHARDS = 2 * WORKERS


def webdataset(job: Job) -> Open:
    """WebDataset: tar files, shared out among the workers; batched in them."""
    import webdataset as wds

    folder = tempfile.TemporaryDirectory(prefix="silva-bench-wds-")
    shards = []
    for number in range(_SHARDS):
        shards.append(f"{folder.name}/{number}.tar")
        with tarfile.open(shards[-1], "w") as tar:
            for path in job.items[number::_SHARDS]:
                tar.add(Path(path).resolve(), arcname=f"{Path(path).stem}.jpg")

    def collate(rows: list[Any]) -> Any:
        import torch.utils.data as data

        return data.default_collate([row[0] for row in rows])

    def batches() -> Any:
        dataset = wds.WebDataset(shards, shardshuffle=False, empty_check=False)
        dataset = dataset.to_tuple("jpg").map_tuple(job.make)
        dataset = dataset.batched(job.batch, collation_fn=collate)
        loader = wds.WebLoader(dataset, batch_size=None, num_workers=WORKERS)
        return Kept(loader, folder)

    return batches


def mosaicml(job: Job) -> Open:
    """MosaicML streaming: MDS shards on the local disk, under a DataLoader."""
    import torch.utils.data as data
    from streaming import MDSWriter, StreamingDataset

    folder = tempfile.TemporaryDirectory(prefix="silva-bench-mds-")
    with MDSWriter(out=folder.name, columns={"jpg": "bytes"}, progress_bar=False) as writer:
        for path in job.items:
            writer.write({"jpg": Path(path).read_bytes()})

    class Photos(StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: int) -> Any:
            return job.make(super().__getitem__(index)["jpg"])

    def batches() -> Any:
        dataset = Photos(local=folder.name, shuffle=False, batch_size=job.batch)
        return Kept(data.DataLoader(dataset, batch_size=job.batch, num_workers=WORKERS), folder)

    return batches


def read_sample(path: str) -> dict[str, bytes]:
    return {"jpg": Path(path).read_bytes()}


@dataclass(frozen=True)
class OfSample:
    """What is made of a sample; goes to workers that are spawned."""

    make: Make

    def __call__(self, sample: dict[str, bytes]) -> Any:
        return self.make(sample["jpg"])


def litdata(job: Job) -> Open:
    """LitData: chunks made by `optimize`, read by its own loader."""
    import litdata as ld

    folder = tempfile.TemporaryDirectory(prefix="silva-bench-lit-")
    ld.optimize(
        fn=read_sample, inputs=list(job.items), output_dir=folder.name, chunk_bytes="32MB",
        num_workers=1,
    )  # fmt: skip

    def batches() -> Any:
        dataset = ld.StreamingDataset(folder.name, shuffle=False, transform=OfSample(job.make))
        loader = ld.StreamingDataLoader(dataset, batch_size=job.batch, num_workers=WORKERS)
        return Kept(loader, folder)

    return batches


class Kept:
    """A loader, and the folder that must outlive it."""

    def __init__(self, loader: Any, folder: Any) -> None:
        self._loader, self._folder = loader, folder

    def __iter__(self) -> Any:
        return iter(self._loader)
