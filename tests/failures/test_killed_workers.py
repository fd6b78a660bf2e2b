"""A worker that is killed, stopped or slow costs time, never rows."""

from __future__ import annotations

import os
import random
import signal
import threading
from pathlib import Path

import pytest
from failure_tools import inline, taken, until, worker_pids

import silva as sv
from silva.run.seams import SlowTask
from silva.testing import cut_blocks, digest

KILLS = 50


def busy(x, rng):
    total = 0
    for i in range(2_000):
        total += i * x
    return total % 1013 + int(rng.integers(1000))


class Killer(threading.Thread):
    """Kills a random worker when it is told to, at a random moment after that. It is told as the
    stream goes on, so there is always one kill at most between two batches."""

    def __init__(self, seed: int) -> None:
        super().__init__(daemon=True)
        self._random = random.Random(seed)
        self._told = threading.Event()
        self._over = threading.Event()
        self.kills = 0

    def tell(self) -> None:
        self._told.set()

    def run(self) -> None:
        while True:
            self._told.wait()
            self._told.clear()
            if self._over.wait(self._random.random() * 0.02):
                return
            pids = worker_pids()
            if pids:
                os.kill(self._random.choice(pids), signal.SIGKILL)
                self.kills += 1

    def stop(self) -> None:
        self._over.set()
        self._told.set()
        self.join()


@pytest.mark.rest
def test_fifty_killed_workers_do_not_change_the_stream(monkeypatch: pytest.MonkeyPatch):
    # chance may kill three workers on one block, which is an error otherwise (see below)
    monkeypatch.setattr("silva.run.pools.processes.ATTEMPTS", KILLS)
    seed = 20240607
    print(f"seed {seed}")
    pipeline = sv.from_columns({"x": range(600)}).shuffle(seed=1).derive(y=busy).batch(8)
    reader = pipeline.loader(backend="inline")
    loader = cut_blocks(pipeline.loader(backend="processes", workers=3), [4])
    killer = Killer(seed)
    killer.start()
    try:
        epochs = 0
        while killer.kills < KILLS:
            expected = [digest(batch) for batch in reader]
            found = []
            for i, batch in enumerate(loader):
                found.append(digest(batch))
                if i % 5 == 0:
                    killer.tell()
            assert found == expected, f"epoch {epochs}, after {killer.kills} kills"
            epochs += 1
    finally:
        killer.stop()
        loader.close()
    print(f"{killer.kills} kills in {epochs} epochs")


def test_a_worker_killed_while_idle_between_epochs_is_replaced():
    pipeline = sv.from_columns({"x": range(64)}).derive(y=busy).batch(8)
    reader = pipeline.loader(backend="inline")
    with pipeline.loader(backend="processes", workers=2) as loader:
        assert [digest(b) for b in loader] == [digest(b) for b in reader]
        for pid in worker_pids():
            os.kill(pid, signal.SIGKILL)
        assert [digest(b) for b in loader] == [digest(b) for b in reader]


def test_stopped_workers_are_found_killed_and_replaced():
    pipeline = sv.from_columns({"x": range(200)}).derive(y=busy).batch(8)
    with cut_blocks(pipeline.loader(backend="processes", workers=2), [4]) as loader:
        found, stopped = [], []
        for i, batch in enumerate(loader):
            found.append(digest(batch))
            if i == 3:
                stopped = worker_pids()
                for pid in stopped:
                    os.kill(pid, signal.SIGSTOP)
        assert stopped
        assert found == inline(pipeline)
        assert not set(stopped) & set(worker_pids())


def test_a_worker_stopped_while_it_starts_is_replaced():
    pipeline = sv.from_columns({"x": range(40)}).derive(y=busy).batch(8)
    with pipeline.loader(backend="processes", workers=1) as loader:
        stopped: list[int] = []

        def stop_the_first() -> None:
            pid = until(lambda: worker_pids())[0]
            os.kill(pid, signal.SIGSTOP)
            stopped.append(pid)

        stopper = threading.Thread(target=stop_the_first)
        stopper.start()
        assert [digest(b) for b in loader] == inline(pipeline)
        stopper.join()
        assert stopped not in (worker_pids(), [])


def hangs_once(x, mark):
    if x == 21:
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return x
        threading.Event().wait()  # the first to come here never ends
    return x


def test_a_task_that_hangs_in_one_worker_is_done_by_another(tmp_path: Path):
    mark = str(tmp_path / "mark")
    pipeline = (
        sv.from_columns({"x": range(60)}).derive(mark=lambda x: mark).derive(y=hangs_once).batch(4)
    )
    made = pipeline.loader(backend="processes", workers=2)
    with made.with_seams(block_sizes=[2], slow=SlowTask(0.3, times=0.0)) as loader:
        found, seen = [], set()
        for batch in loader:
            found.append(digest(batch))
            seen |= set(worker_pids())
        assert found == inline(pipeline)
        for _ in loader:  # by the next epoch at the latest
            seen |= set(worker_pids())
        assert len(seen) > 2, "the worker that hung was not replaced"


def test_an_impure_step_is_never_raced(tmp_path: Path):
    mark = str(tmp_path / "mark")
    step = sv.impure(lambda x, mark: hangs_once(x, mark))
    pipeline = sv.from_columns({"x": range(60)}).derive(mark=lambda x: mark).derive(y=step).batch(4)
    made = pipeline.loader(backend="processes", workers=2, deadline=1.5)
    with (
        made.with_seams(block_sizes=[2], slow=SlowTask(0.1, times=0.0)) as loader,
        pytest.raises(sv.DeadlineError),
    ):
        list(loader)


def kills_itself(x):
    if x == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def leaves(x):
    if x == 13:
        os._exit(3)
    return x


@pytest.mark.parametrize(("step", "says"), [(kills_itself, "SIGKILL"), (leaves, "exit status 3")])
def test_rows_on_which_three_workers_died_are_an_error_that_names_them(step, says):
    pipeline = sv.from_columns({"x": range(40)}).derive(y=step).batch(4)
    with cut_blocks(pipeline.loader(backend="processes", workers=2), [4]) as loader:
        found, error = taken(loader)
        assert isinstance(error, sv.WorkerError)
        assert len(found) == 3
        message = str(error)
        assert "rows 12 to 15" in message
        assert says in message
        assert step.__name__ in message
        assert "test_killed_workers.py" in message


def test_a_worker_that_cannot_start_is_an_error_within_seconds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("silva.run.pools.processes._ENTRY", "/nowhere/worker.py")
    loader = (
        sv.from_columns({"x": range(40)})
        .derive(y=busy)
        .batch(4)
        .loader(backend="processes", workers=2)
    )
    with pytest.raises(sv.WorkerError, match="could not be started"):
        list(loader)
    monkeypatch.undo()
    assert len(list(loader)) == 10, "once the cause is gone, the same loader works"
    loader.close()
