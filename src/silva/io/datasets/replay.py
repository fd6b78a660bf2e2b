"""Checks that a stream of another library yields the same samples each time it is iterated.

A stream is resumed by reading it again up to the position of the state. A stream that shuffles
would then repeat some samples and miss others. What is known to shuffle is refused beforehand;
otherwise the first sample is remembered and compared.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from silva.errors import PlanError, SilvaError, SourceError
from silva.plan.fingerprint import digest, opaque_parts

_CURES = {
    "RandomSampler": ".shuffle()",
    "SubsetRandomSampler": ".shuffle()",
    "WeightedRandomSampler": ".sample(weights=…)",
}


def check_loader(loader: object) -> None:
    """Raises `PlanError` for a torch `DataLoader` whose order is another one at each pass, or that
    reads the share of one rank."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(loader, torch.utils.data.DataLoader):
        return
    data = torch.utils.data
    if isinstance(loader.dataset, data.IterableDataset):
        return
    found = loader.batch_sampler
    if found is None or type(found) is data.BatchSampler:
        found = loader.sampler if found is None else found.sampler
    if type(found) is data.SequentialSampler or isinstance(found, list | tuple | range):
        return
    kind, size = type(found).__name__, getattr(loader, "batch_size", None)
    batch = "" if size is None else f".batch({size})"
    cure = f"sv.from_torch(dataset){_CURES.get(kind, '')}{batch}"
    if isinstance(found, data.DistributedSampler):
        why = "reads the share of one rank, which silva would split among the ranks once more"
    else:
        why = "may give another order in each pass, so that a resumed run would miss rows"
        if kind not in _CURES:
            cure += "; for an order of its own, sv.from_torch(Subset(dataset, list(sampler)))"
    raise PlanError(
        f"from_torch: the {type(loader).__name__} with its {kind} {why}. Pass the dataset itself: "
        f"{cure}"
    )


def naming_errors(stream: Iterable[Any], what: str, size: Callable[[Any], int]) -> Iterator[Any]:
    """The items of a stream. What it raises becomes a `SourceError` that says after how many rows,
    also what is not an `Exception` (`SystemExit`, `GeneratorExit`) and would end its reader.
    `size` is the number of rows of an item."""
    given = 0
    following: Iterator[Any] | None = None
    while True:
        try:
            following = iter(stream) if following is None else following
            item = next(following)
        except StopIteration:
            return
        except (SilvaError, KeyboardInterrupt, MemoryError):
            raise
        except BaseException as error:
            if isinstance(error.__cause__, StopIteration):  # Python's RuntimeError of a generator
                error = error.__cause__
            text = f"{what} raised {_shown(error)} after {given} samples"
            raise SourceError(text) from error
        given += size(item)
        yield item


def _shown(error: BaseException) -> str:
    try:
        text = f"{error}"
    except Exception:  # noqa: BLE001  an error of the user's that has no text
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def first_sample(dataset: Any) -> tuple[Any, ...]:
    """The first sample of a stream, in a tuple; an empty tuple for an empty stream."""
    stream = iter(dataset)
    if not _is_loader(dataset) and iter(dataset) is stream:
        raise PlanError(
            f"the {type(dataset).__name__} can be read only once: its __iter__ returns the same "
            "iterator again. Let __iter__ return a new one, e.g. write it as a generator function"
        )
    for sample in naming_errors(stream, f"the {type(dataset).__name__}", lambda sample: 1):
        return (sample,)
    return ()


def mark_of(sample: tuple[Any, ...]) -> str | None:
    """The digest of a first sample; None if it has no stable digest."""
    try:
        return None if opaque_parts(sample) else digest(sample)
    except (TypeError, ValueError, RuntimeError):  # e.g. a tensor of a type that numpy lacks
        return None


def replayed(dataset: Any, what: str, mark: str | None, start: int) -> Iterator[Any]:
    """The samples from `start` on of a stream whose first sample has the digest `mark`."""
    stream = naming_errors(dataset, what, lambda sample: 1)
    first = tuple(itertools.islice(stream, 1))
    if mark is not None and mark_of(first) != mark:
        message = f"{what} gives other samples each time it is iterated"
        if start:
            raise SourceError(
                f"{message}, so that it cannot be resumed at sample {start:,}: draw its order from "
                "a fixed seed, or use a map-style dataset and let silva shuffle it"
            )
        warnings.warn(f"{message}: a run over it cannot be repeated or resumed", stacklevel=2)
    yield from first[start:]
    yield from itertools.islice(stream, max(start - 1, 0), None)


def _is_loader(dataset: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(dataset, torch.utils.data.DataLoader)
