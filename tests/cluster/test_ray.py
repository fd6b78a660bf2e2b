"""The stream on Ray actors is the stream, whatever becomes of them."""

from __future__ import annotations

import gc
import json
import os
import signal
import time
from typing import Any

import numpy as np
import pytest
from cluster_tools import actors_of, gone, kill, on_ray, rest, until
from failure_tools import inline, taken
from fuzz_check import check
from fuzz_draw import draw
from fuzz_strategy import pipelines
from fuzz_ways import Different, Effort
from hypothesis import HealthCheck, given, settings
from steps_tools import pipeline_of

import silva as sv
from silva.cost.machine import Machine
from silva.errors import RowError, WorkerError
from silva.run.seams import SlowTask
from silva.testing import assert_same_stream, cut_blocks, digest

pytestmark = [pytest.mark.rest, pytest.mark.usefixtures("cluster")]


def busy(x, rng):
    total = 0
    for i in range(2_000):
        total += i * x
    return total % 1013 + int(rng.integers(1000))


def arrays(x):
    return np.full((64, 64), x)


def numbers(rows: int = 200) -> sv.Pipeline:
    return sv.from_columns({"x": range(rows)}).shuffle(seed=1).derive(y=busy).batch(8)


@given(pipelines())
@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_pipeline_gives_one_stream_on_actors(pipeline):
    assert_same_stream(
        pipeline, backends=("ray",), workers=(2,), fresh_process=False, cluster="auto", epochs=1
    )


def test_random_pipelines_give_one_stream_on_actors_too():
    effort = Effort(processes=0.0, ray=True)
    seed = time.time_ns() % 10**9
    for number in range(seed, seed + 20):
        case = draw(number)
        try:
            check(case, effort)
        except Different as error:
            pytest.fail(f"seed {number}: {error}\n\n{case.text}")


def test_rows_that_are_sent_to_actors_come_back_the_same(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"line {i}\n" for i in range(90)))
    pipeline = sv.read_lines(str(path)).derive(size=lambda text: len(text)).batch(7)
    with on_ray(pipeline) as loader:
        assert rest(loader) == inline(pipeline)


def interrupts(x):
    if x == 20:
        raise KeyboardInterrupt
    return x


def test_whatever_a_step_raises_in_an_actor_is_its_rows_failure():
    for step in ("derive", "batched", "after batch"):
        pipeline, policy = pipeline_of(step), sv.Skip()
        with pipeline.loader(backend="inline", on_error=policy) as loader:
            expected = rest(loader), [(f.key, f.step, f.error) for f in loader.failures]
        with on_ray(pipeline, on_error=policy) as loader:
            assert (rest(loader), [(f.key, f.step, f.error) for f in loader.failures]) == expected
    loader = on_ray(sv.from_columns({"x": range(60)}).derive(y=interrupts).batch(4))
    with loader, pytest.raises(KeyboardInterrupt):
        list(loader)


def test_batches_lie_where_actors_wrote_them_may_be_written_and_be_kept():
    pipeline = sv.from_columns({"x": range(64)}).derive(y=arrays).batch(8)
    with on_ray(pipeline) as loader:
        kept = list(loader)
        pool: Any = loader._executor._pools["ray"]
        assert pool.leases.nbytes >= sum(batch["y"].nbytes for batch in kept) / 2
        for batch in kept:
            batch["y"] += 1
    assert [batch["y"][0, 0, 0] for batch in kept] == [8 * i + 1 for i in range(8)]
    del kept, batch
    gc.collect()
    assert pool.leases.nbytes == 0


def test_killed_actors_do_not_change_the_stream():
    pipeline, found, killed = numbers(), [], []
    with cut_blocks(on_ray(pipeline), [4]) as loader:
        for i, batch in enumerate(loader):
            found.append(digest(batch))
            if i in (3, 9):
                process = until(lambda: actors_of(loader))[0][1]
                kill(process)
                killed.append(process)
    assert found == inline(pipeline)
    assert len(set(killed)) == 2


def test_a_block_on_which_every_actor_dies_is_an_error_that_names_its_rows():
    def deadly(x):
        import os

        return os._exit(3) if x == 9 else x

    pipeline = sv.from_columns({"x": range(16)}).derive(y=deadly).batch(2)
    with cut_blocks(on_ray(pipeline, 1), [2]) as loader:
        found, error = taken(loader)
    assert isinstance(error, WorkerError)
    assert "rows 8 to 9 of the order" in str(error)
    assert len(found) == 4


def test_a_node_that_is_lost_costs_time_and_no_rows(cluster):
    import ray

    node = cluster.add_node(num_cpus=1)
    # blocks of 128 KiB lie in the store of the node that made them, and are lost with it
    rows = sv.from_columns({"x": range(400)}).derive(y=busy, a=arrays)
    pipeline, found = rows.batch(8), []
    try:
        with cut_blocks(on_ray(pipeline, 3), [4]) as loader:
            batches = iter(loader)
            found.append(digest(next(batches)))
            until(lambda: len(actors_of(loader)) == 3)
            here = ray.get_runtime_context().get_node_id()
            assert any(where != here for where, _ in actors_of(loader))
            cluster.remove_node(node, allow_graceful=False)
            node = None
            found += rest(batches)
    finally:
        if node is not None:
            cluster.remove_node(node)
    assert found == inline(pipeline)


def test_actors_that_are_not_needed_are_given_back_and_come_again(monkeypatch):
    monkeypatch.setattr("silva.run.ray.roster._IDLE_SECONDS", 0.0)
    pipeline = numbers()
    with on_ray(pipeline) as loader:
        reader = pipeline.loader(backend="inline")
        assert rest(loader) == rest(reader)
        until(lambda: len(actors_of(loader)) == 2)
        pool: Any = loader._executor._pools["ray"]
        assert pool.complete
        pool.use(1)
        until(lambda: len(actors_of(loader)) == 1)
        assert pool.complete
        assert rest(loader) == rest(reader)
        pool.use(2)
        assert not pool.complete, "one is on its way"
        until(lambda: pool.complete)
        assert len(actors_of(loader)) == 2
        assert rest(loader) == rest(reader)


def test_a_stopped_actor_is_outrun_by_one_that_was_not_needed():
    pipeline, found = numbers(), []
    seams = {"block_sizes": [4], "slow": SlowTask(seconds=0.5)}
    with on_ray(pipeline).with_seams(**seams) as loader:
        for i, batch in enumerate(loader):
            found.append(digest(batch))
            if i == 2:
                pool: Any = loader._executor._pools["ray"]
                until(lambda: len(actors_of(loader)) == 2)
                pool.use(1)
                stopped = pool.actors()[0][1]
                os.kill(stopped, signal.SIGSTOP)
        until(lambda: gone([stopped]))
    assert found == inline(pipeline)


def slow(x):
    time.sleep(0.02)
    return x + 1


def test_a_stage_that_local_cores_cannot_do_in_time_goes_to_the_cluster():
    pipeline = sv.from_columns({"x": range(100_000)}).derive(y=slow).batch(10)
    with pipeline.loader(cluster="auto", cpus=4 * Machine.here().cpus) as loader:
        for i, batch in enumerate(loader):
            assert batch["y"][0] == 10 * i + 1
            if actors_of(loader):
                break
        assert loader.stats()["stage 1"]["backend"] == "ray"
        assert "local cores are too few" in str(loader.explain())


def test_a_row_that_fails_is_named_as_it_is_inline():
    def fails(x):
        if x == 13:
            raise ValueError("no thirteen")
        return x

    pipeline = sv.from_columns({"x": range(40)}).derive(y=fails).batch(4)
    with on_ray(pipeline) as loader:
        found, error = taken(loader)
    expected, same = taken(pipeline.loader(backend="inline"))
    assert found == expected
    assert isinstance(error, RowError)
    assert isinstance(same, RowError)
    assert (error.key, error.step) == (same.key, same.step)
    assert isinstance(error.__cause__, ValueError)
    policy = {"on_error": sv.Skip(at_most=1)}
    with on_ray(pipeline, **policy) as loader:
        assert rest(loader) == inline(pipeline, **policy)
        assert [failure.key for failure in loader.failures] == [same.key]


def test_leaving_the_loop_ends_the_actors_and_frees_what_they_held():
    loader = on_ray(numbers())
    for _ in loader:
        until(lambda: len(actors_of(loader)) == 2)
        processes = [process for _, process in actors_of(loader)]
        break
    until(lambda: gone(processes))
    dropped = on_ray(numbers())
    batches = iter(dropped)
    next(batches)
    processes = [process for _, process in actors_of(dropped)]
    assert processes
    del dropped, batches
    gc.collect()
    until(lambda: gone(processes))


@pytest.mark.parametrize(("first", "second"), [("inline", "ray"), ("ray", "inline")])
def test_a_state_moves_between_this_machine_and_the_cluster(first, second):
    pipeline = numbers(80)
    with pipeline.loader(backend=first, cluster="auto") as loader:
        batches = iter(loader)
        found = [digest(next(batches)) for _ in range(4)]
        state = json.loads(json.dumps(loader.state_dict()))
    with pipeline.loader(backend=second, cluster="auto") as loader:
        loader.load_state_dict(state)
        found += rest(loader)
    assert found == inline(pipeline)


def test_a_step_that_hangs_ends_at_the_deadline_with_its_stack():
    def hangs(x):
        import time

        time.sleep(1000)

    pipeline = sv.from_columns({"x": range(4)}).derive(y=hangs).batch(2)
    with on_ray(pipeline, 1, deadline=0.5) as loader:
        _, error = taken(loader)
    assert isinstance(error, sv.DeadlineError)
    assert "time.sleep(1000)" in str(error)
