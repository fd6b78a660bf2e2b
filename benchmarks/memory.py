"""Four gigabytes through 256 MiB: what silva holds while a consumer reads, or stops reading. And
caches that are opened later, in two epochs, under 128 MiB.

Every page counts once. What an idle loader of the same backend takes (Python, numpy, workers) is
taken off; what remains may exceed the budget only by what the consumer itself holds. Nothing else
is taken off: rows within workers, their heaps and shared memory are the budget's matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import sleep
from typing import Any

from benchmarks.arrays import SHAPE, make, one_number_a_page
from benchmarks.workload import BATCH, Contestant, Open, Target, Workload, sizes

_BUDGET = 256 << 20
_SMALL_BUDGET = 128 << 20
_CONSUMER = 64 << 20
"""The batch in hand and the next one (19 MB each), and what malloc keeps for itself."""
_PAUSE_AFTER = 8
_TINY = (8,)
Prepare = Callable[[int, float], Open]
_BACKENDS = ("inline", "threads", "processes")


def reads(backend: str, rows: int, shape: tuple[int, ...] = SHAPE, pause: float = 0.0) -> Open:
    import silva as sv

    _ = sv.Loader  # the engine, imported before the clock starts, as torch is

    numbers = sv.from_columns({"i": range(rows)}).derive(image=lambda i: make(i, shape))
    images = numbers.select("image").batch(BATCH)

    def batches() -> Iterator[dict[str, Any]]:
        with images.loader(backend=backend, workers=2, memory=_BUDGET) as loader:
            for number, batch in enumerate(loader):
                yield batch
                del batch
                if number == _PAUSE_AFTER:
                    sleep(pause)

    return batches


def idle(backend: str) -> Prepare:
    return lambda rows, pause: reads(backend, 20 * BATCH, _TINY, pause)


def full_speed(backend: str) -> Prepare:
    return lambda rows, pause: reads(backend, rows)


def stops(backend: str) -> Prepare:
    return lambda rows, pause: reads(backend, rows, SHAPE, pause)


def later_caches(count: int, backend: str) -> Prepare:
    """Rows that no cache keeps, then those of caches, in two epochs."""

    def prepare(rows: int, pause: float) -> Open:
        import silva as sv

        _ = sv.Loader  # as above

        def images(number: int) -> sv.Pipeline:
            numbers = sv.from_columns({"i": range(rows // 8 + number)})
            return numbers.derive(image=lambda i: make(i)).select("image")

        caches = [images(number).cache() for number in range(1, count + 1)]
        batches = sv.concat([images(0), *caches]).batch(BATCH)

        def epochs() -> Iterator[dict[str, Any]]:
            given: dict[str, Any] = {"backend": backend, "workers": 2, "memory": _SMALL_BUDGET}
            with batches.loader(epochs=2, **given) as loader:
                for _ in range(2):
                    yield from loader

        return epochs

    return prepare


_CACHES = {"a later cache": 1, "two later caches": 2}


def contestants() -> Iterator[Contestant]:
    for backend in _BACKENDS:
        yield Contestant(f"{backend}, idle", idle(backend), key="image", group="idle", limit=True)
        yield Contestant(f"{backend}, full speed", full_speed(backend), key="image")
        yield Contestant(f"{backend}, reader stops", stops(backend), key="image")
        for name, count in _CACHES.items():
            prepare = later_caches(count, backend)
            yield Contestant(f"{backend}, {name}", prepare, key="image", group=name)


def targets() -> Iterator[Target]:
    for backend in _BACKENDS:
        for reader in ("full speed", "reader stops"):
            yield Target(
                f"{backend}, {reader}",
                at_most=_BUDGET + _CONSUMER,
                minus=f"{backend}, idle",
                metric="peak",
            )
        for name in _CACHES:
            yield Target(
                f"{backend}, {name}",
                at_most=_SMALL_BUDGET + _CONSUMER,
                minus=f"{backend}, idle",
                metric="peak",
            )


WORKLOAD = Workload(
    name="memory",
    title='4 GB of arrays under memory="256MiB"',
    setting=sizes({"rows": 7168, "pause": 3.0}, {"rows": 1280, "pause": 1.0}),
    contestants=tuple(contestants()),
    targets=tuple(targets()),
    checksum=one_number_a_page,
    metric="peak",
    shared_once=True,
    rounds=3,
)
