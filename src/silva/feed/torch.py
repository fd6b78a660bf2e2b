"""Batches as torch tensors, in an `IterableDataset` that a trainer can also give to a DataLoader.

Silva has its own workers, so a DataLoader around the feed must have none (`num_workers=0`): each of
its workers would read the whole epoch again.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from silva.errors import LoaderError
from silva.feed.tensors import Place, tensors

if TYPE_CHECKING:
    from torch.utils.data import IterableDataset

    class TorchFeed(IterableDataset[dict[str, Any]]):  # type: ignore[misc]
        """What `torch_feed` makes; the class itself exists once torch is imported."""

        def state_dict(self) -> dict[str, Any]: ...
        def load_state_dict(self, state_dict: Mapping[str, Any]) -> None: ...
        def set_epoch(self, epoch: int) -> None: ...
        def __iter__(self) -> Iterator[dict[str, Any]]: ...
        def __len__(self) -> int: ...


def torch_feed(loader: Any, device: Any = None, pin_memory: bool = False) -> TorchFeed:
    """The loader's batches as dicts of tensors, on `device` if one is given.

    >>> import silva as sv
    >>> feed = torch_feed(sv.from_columns({"x": range(4)}).batch(2).loader(workers=0))
    >>> [batch["x"].tolist() for batch in feed]
    [[0, 1], [2, 3]]
    """
    feed: TorchFeed = _feed_class()(loader, device, pin_memory)
    return feed


@functools.cache
def _feed_class() -> Any:
    """The class, made once: torch takes seconds to import, so not before somebody wants it."""
    from torch.utils.data import IterableDataset, get_worker_info

    class TorchFeed(IterableDataset):  # type: ignore[misc]
        """Batches of a loader as dicts of tensors; state and epochs are the loader's."""

        def __init__(self, loader: Any, device: Any, pin_memory: bool) -> None:
            self._loader = loader
            self._device = device
            self._pin_memory = pin_memory

        def __iter__(self) -> Iterator[dict[str, Any]]:
            if get_worker_info() is not None:
                raise LoaderError(
                    "a silva loader runs its own workers: use DataLoader(feed, batch_size=None, "
                    "num_workers=0), or iterate over loader.to_torch() itself"
                )
            return _converted(iter(self._loader), self._device, self._pin_memory)

        def __len__(self) -> int:
            return len(self._loader)

        def __getstate__(self) -> dict[str, Any]:
            raise LoaderError(
                "a silva loader cannot be sent to another process: it runs its own workers. Use "
                "DataLoader(feed, batch_size=None, num_workers=0)"
            )

        def state_dict(self) -> dict[str, Any]:
            state: dict[str, Any] = self._loader.state_dict()
            return state

        def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
            self._loader.load_state_dict(state_dict)

        def set_epoch(self, epoch: int) -> None:
            self._loader.set_epoch(epoch)

    return TorchFeed


def _converted(
    batches: Iterator[dict[str, Any]], device: Any, pin_memory: bool
) -> Iterator[dict[str, Any]]:
    import torch

    wanted = None if device is None else torch.device(device)
    if wanted is not None and wanted.type == "cuda":
        yield from _on_cuda(batches, wanted, pin_memory)
        return
    pins = pin_memory and torch.cuda.is_available()

    def place(tensor: Any) -> Any:
        moved = tensor if wanted is None else tensor.to(wanted)
        return moved.pin_memory() if pins and moved.device.type == "cpu" else moved

    for batch in batches:
        yield tensors(batch, place)


def _on_cuda(
    batches: Iterator[dict[str, Any]], device: Any, pin_memory: bool
) -> Iterator[dict[str, Any]]:
    """Copies run beside the trainer's work; what they read is kept until they are done."""
    import torch

    under_way: deque[tuple[Any, list[Any]]] = deque()
    try:
        for batch in batches:
            held: list[Any] = []
            moved = tensors(batch, _copying(device, pin_memory, held))
            done = torch.cuda.Event()
            done.record(torch.cuda.current_stream(device))
            under_way.append((done, held))
            while under_way and under_way[0][0].query():
                under_way.popleft()
            yield moved
    finally:
        for done, _ in under_way:
            done.synchronize()


def _copying(device: Any, pin_memory: bool, held: list[Any]) -> Place:
    def place(tensor: Any) -> Any:
        source = tensor.pin_memory() if pin_memory else tensor
        held.append(source)
        return source.to(device, non_blocking=True)

    return place
