"""Pipelines written into tables: every row once, whatever happens."""

from __future__ import annotations

import random
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
from failure_tools import run_script, start_script
from store_tools import assert_no_orphans, rows_of

import silva as sv

COUNT = 700


def rows(count: int = COUNT) -> sv.Pipeline:
    return (
        sv.from_columns({"x": np.arange(count)})
        .derive(user=lambda x: f"u{x % 5}", maybe=lambda x: None if x % 3 == 0 else float(x))
        .shuffle(seed=2)
    )


def numbers(table: sv.Table) -> list[int]:
    return sorted(row["x"] for row in rows_of(table, ["x"]))


def test_a_pipeline_becomes_a_table_of_some_appends(tmp_path):
    table = rows().to_table(tmp_path / "t", key="x", group="user", time="x", shard_rows=300)
    found = [version.what for version in table.versions()]
    assert found == ["create with 300 rows", "append 300 rows", "append 100 rows"]
    assert sorted(rows_of(table), key=lambda row: row["x"]) == sorted(
        rows().loader(backend="inline"), key=lambda row: row["x"]
    )
    assert sum(len(set(users)) for users in _runs(table)) == 5
    assert_no_orphans(tmp_path / "t")


def _runs(table: sv.Table) -> list[list[str]]:
    first = [row["user"] for row in rows_of(table)][:300]
    return [first[i : i + 1] for i in range(300) if i == 0 or first[i] != first[i - 1]]


def test_a_finished_run_is_recognised_and_another_pipeline_is_appended(tmp_path):
    table = rows(20).to_table(tmp_path, shard_rows=8)
    version = table.version.number
    assert rows(20).to_table(tmp_path, shard_rows=8).version.number == version
    with pytest.raises(sv.PlanError, match="begun with rows=8, not 5"):
        rows(20).to_table(tmp_path, shard_rows=5)
    other = rows(20).derive(x=sv.col("x") + 20).select("x", "user", "maybe")
    assert numbers(other.to_table(tmp_path)) == list(range(40))


def test_rows_that_were_restored_away_are_written_again(tmp_path):
    table = rows(20).to_table(tmp_path, shard_rows=8)
    table.restore(2)
    assert table.rows == 16
    assert numbers(rows(20).to_table(tmp_path, shard_rows=8)) == list(range(20))


def test_a_table_that_does_not_fit_is_refused(tmp_path):
    rows(9).to_table(tmp_path / "t", key="x")
    with pytest.raises(sv.PlanError, match=r"group='user', but the group of the table .* is None"):
        rows(8).to_table(tmp_path / "t", group="user")
    with pytest.raises(sv.TableError, match="already in the table"):
        rows(8).to_table(tmp_path / "t")
    with pytest.raises(sv.SilvaError, match="'maybe'"):
        rows(8).drop("maybe").to_table(tmp_path / "t")
    with pytest.raises(sv.TableError, match="'new'"):
        rows(8).derive(new=lambda x: 1).to_table(tmp_path / "t")
    with pytest.raises(sv.TableError, match="has no rows, so the types"):
        rows(8).filter(lambda x: False).to_table(tmp_path / "empty")
    with pytest.raises(sv.PlanError, match="one process writes"):
        rows(8).to_table(tmp_path / "t", rank=0)
    assert sv.Table.open(tmp_path / "t").version.number == 1


def test_a_pipeline_that_cannot_be_known_again_is_refused(tmp_path):
    lock = threading.Lock()
    with pytest.raises(sv.PlanError, match="lock has no stable fingerprint"):
        rows(8).derive(y=lambda x: lock.locked()).to_table(tmp_path / "t")


def test_a_branch_is_written_apart_from_others(tmp_path):
    main = rows(20).to_table(tmp_path, key="x", shard_rows=8)
    rest = main.at(1).branch("rest")
    with pytest.raises(sv.TableError, match="already in the table"):
        rows(24).to_table(tmp_path, branch="rest", shard_rows=8)
    assert rest.rows == 8
    done = rows(20).to_table(tmp_path, branch="rest", shard_rows=8)
    assert [v.what for v in done.versions()[-3:]] == [
        "branch from main 1",
        "append 8 rows",
        "append 4 rows",
    ], "the rows that it begins with are written already"
    assert numbers(done) == list(range(20))
    assert str(done.version) == "rest 4: append 4 rows"
    assert rows(20).to_table(tmp_path, branch="rest", shard_rows=8).version == done.version
    assert main.version.number == 3
    done.restore(2)
    assert numbers(rows(20).to_table(tmp_path, branch="rest", shard_rows=8)) == list(range(20))
    empty = main.branch("empty").delete(sv.col("x") >= 0)
    other = rows(20).options(seed=1)
    assert numbers(other.to_table(tmp_path, branch="empty")) == list(range(20))
    assert (main.rows, empty.rows) == (20, 20)
    main.gc()
    assert_no_orphans(tmp_path)


def test_a_branch_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(sv.TableError, match=r"is not a table yet\. A table starts with the branch"):
        rows(8).to_table(tmp_path / "t", branch="trial")
    assert not (tmp_path / "t").exists()
    rows(8).to_table(tmp_path / "t")
    with pytest.raises(sv.TableError, match="has no branch 'trial'; its branches are main"):
        rows(8).to_table(tmp_path / "t", branch="trial")
    with pytest.raises(sv.TableError, match="the name of a branch may hold only letters"):
        rows(8).to_table(tmp_path / "t", branch="../trial")


CHILD = """
import os, signal, sys
import numpy as np
import silva as sv

path, moment, branch = sys.argv[1], int(sys.argv[2]), sys.argv[3]
rows = sv.from_columns({"x": np.arange(90)}).derive(user=lambda x: f"u{x % 5}").shuffle(seed=2)
calls = 0


def count(frame, event, argument):
    global calls
    name = frame.f_code.co_filename
    if "silva/store" in name or "silva/sinks" in name:
        calls += 1
        if calls == moment:
            os.kill(os.getpid(), signal.SIGKILL)


sys.setprofile(count)
rows.to_table(path, branch=branch, group="user", shard_rows=30, backend="inline")
sys.setprofile(None)
print(calls)
"""


def killed_and_run_again(folder: Path, branch: str, moments: list[int]) -> None:
    """Each run is killed at another of its calls, the last one is not."""
    path = folder / "-".join([branch, *map(str, moments)])
    before = begun(path, branch)
    for moment in moments:
        child = start_script(folder, CHILD, str(path), str(moment), branch)
        _, err = child.communicate(timeout=60)
        assert child.returncode in (-signal.SIGKILL, 0), err
    run_script(folder, CHILD, str(path), "-1", branch)
    table = sv.Table.open(path, branch)
    assert numbers(table) == list(range(90))
    assert len(table.versions()) == before + 3
    table.gc()
    assert_no_orphans(path)


def begun(path: Path, branch: str) -> int:
    """An empty branch of a table, if it is not the main one; how many versions it has."""
    if branch == "main":
        return 0
    one = sv.from_columns({"x": [1000]}).derive(user=lambda x: f"u{x}").to_table(path, group="user")
    return len(one.branch(branch).delete(sv.col("x") >= 0).versions())


def calls_of_a_run(folder: Path, branch: str) -> int:
    begun(folder / f"whole-{branch}", branch)
    return int(run_script(folder, CHILD, str(folder / f"whole-{branch}"), "-1", branch))


@pytest.mark.rest
@pytest.mark.parametrize("branch", ["main", "trial"])
def test_runs_killed_at_many_moments_go_on_without_losing_or_repeating_rows(tmp_path, branch):
    calls = calls_of_a_run(tmp_path, branch)
    rng = random.Random(6)
    for _ in range(8):
        killed_and_run_again(tmp_path, branch, [rng.randint(1, calls) for _ in range(2)])


BETWEEN = """
import os, signal, sys
import numpy as np
import silva as sv
from silva.sinks import write

path, left = sys.argv[1], int(sys.argv[2])
rows = sv.from_columns({"x": np.arange(90)}).derive(user=lambda x: f"u{x % 5}").shuffle(seed=2)
listed = write.write_progress


def dies(folder, progress):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    listed(folder, progress)


write.write_progress = dies
rows.to_table(path, key="x", group="user", shard_rows=30, backend="inline")
"""


@pytest.mark.parametrize(
    "moment",  # the first is listed before any shard
    [2, pytest.param(3, marks=pytest.mark.rest), pytest.param(4, marks=pytest.mark.rest)],
)
def test_a_shard_that_was_committed_but_not_yet_listed_is_not_appended_again(tmp_path, moment):
    path = tmp_path / "table"
    child = start_script(tmp_path, BETWEEN, str(path), str(moment))
    _, err = child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL, err
    assert sv.Table.open(path).rows == 30 * (moment - 1)
    sv.Table.open(path).tag("dead").delete(sv.col("x") == 89).gc(versions=1)
    run_script(tmp_path, BETWEEN, str(path), "-1")
    found = numbers(sv.Table.open(path))
    assert len(found) == len(set(found))
    assert set(range(89)) <= set(found)
