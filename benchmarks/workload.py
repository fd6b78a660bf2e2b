"""What a workload is: contestants, what they must agree on, and the targets, all as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

BATCH = 32

Metric = Literal["rate", "first", "peak", "cpu_row"]
Shape = tuple[int | None, ...]
"""None where it may be anything."""
Open = Callable[[], Iterable[Any]]
"""Makes the loader and hands out its batches; called with the clock running."""


@dataclass(frozen=True)
class Contestant:
    name: str
    prepare: Callable[..., Open]
    """Imports and builds what is not measured; receives the workload's parameters by name."""
    key: str | None = None
    """Where batches are dicts: the column whose rows are counted."""
    share: float = 1.0
    """The part of the rows that is enough to know the rate of a slow contestant."""
    group: str = ""
    """Contestants of one group, with the same share, must agree on rows and checksum."""
    limit: bool = False
    """Written by hand for this one job: what a framework can hope for."""
    environment: str | None = None
    """Where it runs (see `environments`); without a name, where silva is installed."""
    long: bool = False
    """Left out of quick runs: it takes long to start or to prepare."""
    given: dict[str, Any] = field(default_factory=dict)
    """Parameters of its own, beside those of the workload."""


@dataclass(frozen=True)
class Target:
    """`who`, less `minus`, divided by (the best of) `of`, is at least or at most so much."""

    who: str
    at_least: float | None = None
    at_most: float | None = None
    of: str | tuple[str, ...] | None = None
    minus: str | None = None
    metric: Metric = "rate"

    def among(self, names: set[str]) -> Target | None:
        """The target where only these take part; nothing where one is missing that it needs."""
        of = self.of
        if isinstance(of, tuple):
            of = tuple(name for name in of if name in names) or "nobody"
        needed = {self.who, self.minus, *(of if isinstance(of, tuple) else (of,))} - {None}
        return replace(self, of=of) if needed <= names else None

    def reached(self, value: float) -> bool:
        if self.at_least is not None and value < self.at_least:
            return False
        return self.at_most is None or value <= self.at_most


Setting = Callable[[bool], AbstractContextManager[dict[str, Any]]]
"""Given whether to be quick: the parameters of all contestants, for as long as they are needed.
A parameter `data` is not for them: it says in words what data is used."""


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    setting: Setting
    contestants: tuple[Contestant, ...]
    targets: tuple[Target, ...] = ()
    checksum: Callable[[Any], float] = float
    """Of one batch; those of an epoch are added up and must be the same for all contestants."""
    whole: bool = False
    """The checksum is of all columns, not of the one whose rows are counted."""
    shape: Shape | None = None
    """Of one row, where every contestant must give numbers of this shape and of `dtype`."""
    dtype: str = "float32"
    expected: Callable[..., tuple[int, float]] | None = None
    """Rows and checksum, from the parameters, where they are known beforehand."""
    tolerance: float = 0.0
    """How far checksums may differ, relatively: only for random steps and float sums."""
    metric: Metric = "rate"
    """What the picture shows."""
    warm: bool = False
    epochs: int = 1
    first_only: bool = False
    """Stops after the first batch."""
    shared_once: bool = False
    """Counts shared memory once: slower to look at, and exact."""
    rounds: int | None = None
    remarks: str = ""
    """What a reader of the table should know."""

    def contestant(self, name: str) -> Contestant:
        return next(c for c in self.contestants if c.name == name)

    def only(self, wanted: Callable[[Contestant], bool]) -> Workload:
        """With some of the contestants, and the targets that speak of nobody else."""
        kept = tuple(c for c in self.contestants if wanted(c))
        names = {c.name for c in kept}
        targets = (target.among(names) for target in self.targets)
        return replace(self, contestants=kept, targets=tuple(t for t in targets if t is not None))


def sizes(full: dict[str, Any], quick: dict[str, Any]) -> Setting:
    """Parameters that need nothing to be made."""

    @contextmanager
    def setting(is_quick: bool) -> Iterator[dict[str, Any]]:
        yield quick if is_quick else full

    return setting


def sum_of(batch: Any) -> float:
    """The sum of a batch of whole numbers: a list, an array or a tensor."""
    return float(sum(batch) if isinstance(batch, list) else batch.sum())
