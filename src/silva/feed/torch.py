"""Batches as torch tensors, in an `IterableDataset` that can also be given to a DataLoader.

silva has its own workers, so a DataLoader around the feed must have none (`num_workers=0`): each of
its workers would read the whole epoch again. A column becomes a tensor without a copy where torch
can share its memory.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from silva.columns.ragged import Grouped, Ragged
from silva.errors import LoaderError
from silva.feed.refuse import refuse_missing, refuse_type

Place = Callable[[Any], Any]
"""Moves a tensor to the wanted device."""

_DTYPES = {np.dtype(code) for code in "?bBhHiIlLqQefdFD"}
"""The number types that torch has too."""

if TYPE_CHECKING:
    from torch.utils.data import IterableDataset

    class TorchFeed(IterableDataset[dict[str, Any]]):  # type: ignore[misc]
        """The type of what `torch_feed` returns; the class is made once torch is imported."""

        def state_dict(self) -> dict[str, Any]: ...
        def load_state_dict(self, state_dict: Mapping[str, Any]) -> None: ...
        def set_epoch(self, epoch: int) -> None: ...
        def __iter__(self) -> Iterator[dict[str, Any]]: ...
        def __len__(self) -> int: ...


class Resumable(Protocol):
    """What a feed needs of a loader: its batches, and its position in them."""

    def __iter__(self) -> Iterator[dict[str, Any]]: ...
    def __len__(self) -> int: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...
    def set_epoch(self, epoch: int) -> None: ...


def torch_feed(loader: Resumable, device: Any = None, pin_memory: bool = False) -> TorchFeed:
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
    """Makes the class once, at the first use: importing torch takes seconds."""
    from torch.utils.data import IterableDataset, get_worker_info

    class TorchFeed(IterableDataset):  # type: ignore[misc]
        """Batches of a loader as dicts of tensors; state and epochs are the loader's."""

        def __init__(self, loader: Resumable, device: Any, pin_memory: bool) -> None:
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
            return self._loader.state_dict()

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
        if not torch.cuda.is_available():
            raise LoaderError(
                f"to_torch(device={str(wanted)!r}): this torch has no CUDA device; install a build "
                "of torch with CUDA on a machine with a GPU, or leave device= out"
            )
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
    """Copies batches asynchronously; the host memory of a copy is kept until the copy is done."""
    import torch

    copies: deque[tuple[Any, list[Any]]] = deque()
    try:
        for batch in batches:
            sources: list[Any] = []

            def place(tensor: Any, sources: list[Any] = sources) -> Any:
                sources.append(tensor.pin_memory() if pin_memory else tensor)
                return sources[-1].to(device, non_blocking=True)

            moved = tensors(batch, place)
            done = torch.cuda.Event()
            done.record(torch.cuda.current_stream(device))
            copies.append((done, sources))
            while copies and copies[0][0].query():
                copies.popleft()
            yield moved
    finally:
        for done, _ in copies:
            done.synchronize()


def tensors(batch: dict[str, Any], place: Place) -> dict[str, Any]:
    """Each column as a tensor, a `Ragged` or `Grouped` of tensors, or a list where rows are text or
    objects. An index that columns share is one tensor."""
    indices: dict[int, Any] = {}

    def grouped(name: str, value: Grouped) -> Grouped:
        if id(value.inverse) not in indices:
            indices[id(value.inverse)] = _column(name, value.inverse, place)
        return Grouped.of(_column(name, value.unique, place), indices[id(value.inverse)])

    return {
        name: grouped(name, value) if isinstance(value, Grouped) else _column(name, value, place)
        for name, value in batch.items()
    }


def _column(name: str, value: Any, place: Place) -> Any:
    import torch

    if isinstance(value, Ragged):
        return Ragged(_column(name, value.values, place), _column(name, value.offsets, place))
    if isinstance(value, np.ma.MaskedArray):
        refuse_missing(name, "torch")
    if isinstance(value, np.ndarray | np.generic):
        return _array(name, np.asarray(value), place)
    return place(value) if isinstance(value, torch.Tensor) else value


def _array(name: str, array: np.ndarray, place: Place) -> Any:
    import torch

    if array.dtype.kind in "OUS":
        return array.tolist()
    dtype = array.dtype.newbyteorder("=")
    if dtype not in _DTYPES:
        refuse_type(name, array.dtype, "torch")
    if not array.dtype.isnative:
        array = array.astype(dtype)
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    return place(torch.from_numpy(array))
