"""With several ranks, each takes as many steps as the others, and as `len(loader)` says."""

from __future__ import annotations

import numpy as np
import pytest

import silva as sv
from silva.columns import Array


def rows(count: int) -> sv.Pipeline:
    return sv.from_columns({"x": np.arange(count)})


@sv.register_source("units of any length")
class Units:
    """Knows how many rows it has, and not how many each unit has."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes

    def columns(self):
        return ("x",)

    def fingerprint(self):
        return str(self.sizes)

    def units(self):
        return len(self.sizes)

    def length(self):
        return sum(self.sizes)

    def open(self, unit, start, columns):
        if start < self.sizes[unit]:
            yield {"x": Array(np.arange(start, self.sizes[unit]) + 100 * unit)}


def pipelines(count: int) -> dict[str, sv.Pipeline]:
    few = rows(count)
    mapped = few.map_rows(lambda row: row)
    return {
        "rows": few,
        "shuffled": few.shuffle(seed=1),
        "skipped": few.skip(1),
        "concat": sv.concat([few, rows(3), rows(5)]),
        "mix": sv.mix([few, rows(3)], seed=1, stop="all"),
        "skipped in flight": sv.concat([mapped, rows(3)]).skip(3),
        "taken in flight": sv.concat([few, rows(9)]).take(count),
        "zip": sv.zip([few, rows(count + 3).rename(x="y")], stop="shortest"),
        "one unit": sv.from_source(Units(count)),
        "windows": sv.from_source(Units(count)).shuffle(seed=1, window=3),
    }


@pytest.mark.parametrize("name", pipelines(1))
@pytest.mark.parametrize("world", [2, 3])
def test_every_rank_takes_as_many_steps_as_the_loader_says(name, world):
    for count in (1, 4, 6, 7, 12):
        for each in (1, 2):
            pipeline = pipelines(count)[name].options(shards=world)
            dropping = pipeline.batch(world * each, drop_last=True)
            whole = dropping.loader(backend="inline", rank=0, world=1)
            steps = [[sorted(batch["x"].tolist())] for batch in whole]
            ranks = [dropping.loader(backend="inline", rank=r, world=world) for r in range(world)]
            found = [list(loader) for loader in ranks]
            assert {len(loader) for loader in (whole, *ranks)} == {len(steps)}, (count, each)
            assert {len(batches) for batches in found} == {len(steps)}, (count, each)
            for step, batches in zip(steps, zip(*found, strict=True), strict=True):
                assert step == [sorted(x for b in batches for x in b["x"].tolist())]
            assert dropping.count() == len(steps)
            assert pipeline.batch(world * each).count() == len(
                list(pipeline.batch(world * each).loader(backend="inline"))
            )


@pytest.mark.parametrize("name", pipelines(1))
def test_without_drop_last_ranks_take_the_same_steps_or_are_refused(name):
    for count in (1, 4, 6, 7, 12):
        batches = pipelines(count)[name].batch(2)
        found = []
        for rank in range(2):
            try:
                found.append(len(list(batches.loader(backend="inline", rank=rank, world=2))))
            except sv.PlanError:
                found.append(-1)
        assert found[0] == found[1], count


@pytest.mark.parametrize("sizes", [(2, 2, 2, 14), (3, 1), (1, 1, 1)])
@pytest.mark.parametrize("drop_last", [False, True])
def test_units_whose_rows_nobody_counted_need_a_number_of_steps(sizes, drop_last):
    batches = sv.from_source(Units(*sizes)).batch(4, drop_last=drop_last)
    told = r"the source \(units of any length of \d+ rows\) does not know how many rows each of its"
    for world in (2, 4):
        loader = batches.loader(backend="inline", rank=0, world=world)
        with pytest.raises(TypeError, match=told):
            len(loader)
        with pytest.raises(sv.PlanError, match=told):
            next(iter(loader))
    assert len(batches.loader(backend="inline")) == batches.count()


def test_an_epoch_continues_to_the_last_step_that_all_ranks_take():
    batches = rows(7).batch(4, drop_last=True)
    loader = batches.loader(backend="inline", rank=0, world=2)
    next(iter(loader))
    resumed = batches.loader(backend="inline", rank=0, world=2)
    resumed.load_state_dict(loader.state_dict())
    assert list(resumed) == []


def test_a_pipeline_that_ends_wrongly_is_an_error_on_every_rank():
    batches = sv.zip([rows(7), rows(9).rename(x="y")]).batch(2, drop_last=True)
    for rank in range(2):
        with pytest.raises(sv.SilvaError, match="ended while"):
            list(batches.loader(backend="inline", rank=rank, world=2))
