"""One run for all readers of a stream, and each gets what a loader of its own would give it."""

from __future__ import annotations

import functools
import itertools
import operator
import threading

import numpy as np
import pytest
from fuzz_strategy import pipelines
from hypothesis import given, reject, settings
from service_tools import PIPELINES, digests, in_threads, photos, sentences

import silva as sv
from silva.plan.schema import is_batched


@pytest.fixture
def service():
    with sv.Service(PIPELINES, workers=0) as made:
        yield made


def rows_of(batches):
    """All of the ranks' rows."""
    return [x for batch in batches for x in batch["x"].tolist()]


@given(pipelines())
@settings(max_examples=10)
def test_the_stream_is_that_of_any_loader(pipeline):
    if not is_batched(pipeline.plan):
        pipeline = pipeline.batch(5)
    with sv.Service({"it": pipeline}, workers=0) as service:
        own = pipeline.loader(workers=0)
        served = pipeline.loader(service=service.address, token=service.token)
        found = two_epochs(served)
        if "cannot be sent" in found:
            reject()
        assert two_epochs(own) == found


def two_epochs(loader):
    """Their batches, or what is said of a row that cannot be in one."""
    try:
        return [digests(loader), digests(loader)]
    except sv.ColumnError as error:
        return str(error)


def test_workers_and_states_are_as_everywhere(service):
    pipeline = PIPELINES["photos"]
    how = {"service": service.address, "token": service.token}
    own, served = pipeline.loader(workers=0), pipeline.loader(**how)
    taken = digests(itertools.islice(served, 4))
    state = served.state_dict()
    assert digests(own)[:4] == taken
    own.load_state_dict(state)
    again = pipeline.loader(**how)
    again.load_state_dict(state)
    assert [digests(own), digests(own)] == [digests(again), digests(again)]
    assert len(served) == 13
    served.set_epoch(5)
    own.set_epoch(5)
    assert digests(served) == digests(own)


def test_each_rank_gets_its_shards(service):
    pipeline = PIPELINES["photos"]
    for rank in range(2):
        how = {"rank": rank, "world": 2, "steps": 6}
        served = pipeline.loader(service=service.address, token=service.token, **how)
        assert digests(served) == digests(pipeline.loader(workers=0, **how))


def test_readers_of_one_stream_share_one_run():
    calls = []
    pipeline = sv.from_columns({"x": range(64)}).derive(y=lambda x: calls.append(x) or x).batch(8)
    with sv.Service({"it": pipeline}, backend="inline") as service:
        loaders = [sv.connect(service.address, "it", token=service.token) for _ in range(4)]
        found = in_threads(*(lambda loader=loader: digests(loader) for loader in loaders))
        assert all(one == found[0] for one in found)
        assert len(found[0]) == 8
        (run,) = service.stats()["runs"]
        assert len(run["readers"]) == 4
        once = [x % 64 for x in range(len(calls))]  # it goes on with the next epoch
        assert calls == once, "rows were made once for all four"


def test_a_slow_reader_does_not_stall_a_fast_one():
    pipeline = (
        sv.from_columns({"x": range(400)}).derive(y=lambda x: np.full(1000, x, np.float64)).batch(4)
    )
    with sv.Service({"it": pipeline}, workers=0, memory="100kB", patience=0.0) as service:
        how = {"token": service.token, "memory": 1}
        slow = iter(sv.connect(service.address, "it", **how))
        first = next(slow)
        fast = digests(sv.connect(service.address, "it", **how))  # waits for nobody
        assert len(fast) == 100
        rest = digests(itertools.chain([first], slow))
        assert rest == fast, "left behind, it goes on in a run of its own"
        assert sum(run["left_behind"] for run in service.stats()["runs"]) >= 1
        assert all(run["bytes"] < 200_000 for run in service.stats()["runs"])


def test_a_fast_reader_waits_for_a_slow_one_as_long_as_it_has_patience():
    pipeline = (
        sv.from_columns({"x": range(400)}).derive(y=lambda x: np.full(1000, x, np.float64)).batch(4)
    )
    with sv.Service({"it": pipeline}, workers=0, memory="300kB", patience=1e6) as service:
        how = {"token": service.token, "memory": 1}
        one, two = (sv.connect(service.address, "it", **how) for _ in range(2))
        begun = threading.Barrier(2)

        def read(loader):
            batches = iter(loader)
            first = next(batches)
            begun.wait()
            return digests(itertools.chain([first], batches))

        found = in_threads(lambda: read(one), lambda: read(two))
        assert found[0] == found[1]
        assert [run["left_behind"] for run in service.stats()["runs"]] == [0]


def test_aligned_ranks_get_rows_of_one_batch(service):
    """Coordinated reads: in every step all ranks have rows of one bucket, padded to one length."""
    pipeline = PIPELINES["sentences"]
    whole = [batch["x"].tolist() for batch in pipeline.loader(workers=0) if len(batch["x"]) >= 3]
    how = {"token": service.token, "aligned": True, "world": 3}
    ranks = [sv.connect(service.address, "sentences", rank=r, **how) for r in range(3)]
    steps = list(zip(*ranks, strict=True))
    assert [
        functools.reduce(operator.iadd, (b["x"].tolist() for b in step), []) for step in steps
    ] == whole
    assert all(len({b["t"].shape[1] for b in step}) == 1 for step in steps)
    sizes = [[len(b["x"]) for b in step] for step in steps]
    assert all(max(step) - min(step) <= 1 for step in sizes)


def test_aligned_ranks_may_become_more_or_fewer(service):
    pipeline = PIPELINES["photos"]
    how = {"token": service.token, "aligned": True}
    three = [sv.connect(service.address, "photos", rank=r, world=3, **how) for r in range(3)]
    begun = [next(iter(loader)) for loader in three]
    states = [loader.state_dict() for loader in three]
    assert states[0] == states[1] == states[2]
    two = [sv.connect(service.address, "photos", rank=r, world=2, **how) for r in range(2)]
    for loader in two:
        loader.load_state_dict(states[0])
    rest = [
        functools.reduce(operator.iadd, (b["x"].tolist() for b in step), [])
        for step in zip(*two, strict=True)
    ]
    whole = [batch["x"].tolist() for batch in pipeline.loader(workers=0)]
    assert [rows_of(begun), *rest] == whole


def test_grouped_columns_are_dealt_out_too():
    pipeline = (
        sv.from_columns({"x": range(12)})
        .derive(user=lambda x: [x // 5, 1], other=lambda x: [x // 5])
        .batch(6, grouped=[("user", "other")])
    )
    with sv.Service({"it": pipeline}, workers=0) as service:
        how = {"token": service.token, "aligned": True, "world": 2}
        for rank in range(2):
            for got, whole in zip(
                sv.connect(service.address, "it", rank=rank, **how),
                pipeline.loader(workers=0),
                strict=True,
            ):
                part = slice(3 * rank, 3 * rank + 3)
                expected = [row.tolist() for row in whole["user"]][part]
                assert [row.tolist() for row in got["user"]] == expected
                assert got["user"].inverse is got["other"].inverse
                assert got["user"].inverse[0] == 0


def test_a_job_that_needs_any_stream_joins_the_one_under_way(service):
    pipeline = photos(3000)
    with sv.Service({"it": pipeline}, workers=0, memory="20kB", patience=0.0) as service:
        how = {"token": service.token, "memory": 1}
        first = iter(sv.connect(service.address, "it", **how))
        for _ in range(50):
            next(first)
        joined = sv.connect(service.address, "it", exact=False, **how)
        batch = next(iter(joined))
        assert joined.state_dict()["step"] > 10, "not from the beginning"
        assert len(batch["x"]) == 16
        assert len(service.stats()["runs"]) == 1


def test_a_run_that_nobody_wants_ends(service):
    ended = threading.Event()

    def watch() -> None:
        while made.stats()["runs"]:
            pass
        ended.set()

    with sv.Service({"it": photos()}, workers=0, idle=0.2) as made:
        digests(sv.connect(made.address, "it", token=made.token))
        thread = threading.Thread(target=watch)
        thread.start()
        thread.join(30)
        assert ended.is_set()


def test_tensors_come_as_such(service):
    pipeline = PIPELINES["photos"]
    feed = pipeline.loader(service=service.address, token=service.token).to_torch()
    own = pipeline.loader(workers=0).to_torch()
    for got, wanted in zip(feed, own, strict=True):
        assert (got["image"] == wanted["image"]).all()


def test_batches_may_be_written(service):
    loader = sv.connect(service.address, "photos", token=service.token)
    for batch in loader:
        batch["image"] += 1


def test_batches_that_share_memory_do_not_share_values():
    """Batches of 40 KB are read together: writing one, or dropping most, changes no other."""
    wide = np.arange(8000 * 100).reshape(8000, 100)
    pipeline = sv.from_columns({"x": wide}).batch(50)
    with sv.Service({"wide": pipeline}, workers=0) as service:
        loader = sv.connect(service.address, "wide", token=service.token)
        for _ in range(2):
            kept = []
            for number, batch in enumerate(loader):
                assert batch["x"].flags.aligned
                if number % 7 == 0:
                    kept.append((number, batch["x"]))
                else:
                    batch["x"][:] = -1
            assert all((x == wide[50 * at : 50 * at + 50]).all() for at, x in kept)


def test_unaligned_lengths_and_rows_are_refused():
    with pytest.raises(sv.PlanError, match="batch"):
        sv.Service({"rows": sv.from_columns({"x": range(3)})})
    odd = sentences().derive(one=lambda x: 1.0)
    with (
        sv.Service({"odd": odd}, workers=0) as service,
        pytest.raises(sv.ColumnError, match="one value for each row"),
    ):
        digests(
            sv.connect(service.address, "odd", token=service.token, aligned=True, rank=0, world=2)
        )
