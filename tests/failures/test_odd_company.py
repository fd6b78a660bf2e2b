"""Pools live with what people do: print, close files, change directory, fork, use threads."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest
from failure_tools import every_way, inline, run_script

import silva as sv
from silva.testing import cut_blocks, digest


def test_a_function_that_prints_a_lot_and_closes_stdin_does_not_break_the_pool(tmp_path: Path):
    text = (
        "import os, sys\nimport silva as sv\n"
        "def talks(x):\n"
        "    print('x' * 5000)\n"
        "    print('y' * 500, file=sys.stderr)\n"
        "    sys.stdin.read()\n"
        "    sys.stdin.close()\n"
        "    sys.stdin = open(os.devnull)\n"
        "    return x\n"
        "loader = sv.from_columns({'x': range(100)}).derive(y=talks).batch(4)"
        ".loader(backend='processes', workers=2)\n"
        "print(sum(len(b['y']) for b in loader))\n"
    )
    assert "\n100\n" in run_script(tmp_path, text)


def wanders(x):
    os.chdir("/")
    os.environ["OMP_NUM_THREADS"] = "7"
    return x


def test_a_function_that_changes_directory_does_not_break_the_pool(tmp_path: Path):
    here = os.getcwd()
    pipeline = sv.from_columns({"x": range(40)}).derive(y=wanders).batch(4)
    with pipeline.loader(backend="processes", workers=2) as loader:
        assert sum(len(b["y"]) for b in loader) == 40
    assert os.getcwd() == here


def closes_everything(x):
    if x == 5:
        os.closerange(3, 200)
    return x


def test_a_function_that_closes_silvas_socket_is_an_error_that_names_the_rows():
    pipeline = sv.from_columns({"x": range(12)}).derive(y=closes_everything).batch(4)
    made = pipeline.loader(backend="processes", workers=1)
    with (
        cut_blocks(made, [4]) as loader,
        pytest.raises(sv.WorkerError, match="rows 4 to 7"),
    ):
        list(loader)


def changes_its_input(y):
    y[0] = 1
    return y


@every_way
def test_inputs_are_read_only_everywhere(backend, workers):
    pipeline = (
        sv.from_columns({"x": range(40)})
        .derive(y=lambda x: np.zeros(20_000))
        .derive(z=changes_its_input)
        .batch(4)
    )
    loader = pipeline.loader(backend=backend, workers=workers)
    with pytest.raises(sv.RowError, match="read-only"):
        list(loader)


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_two_loaders_in_two_threads_do_not_disturb_each_other(backend):
    import random

    pipelines = [
        sv.from_columns({"x": range(200)}).shuffle(seed=i).derive(y=step).batch(4)
        for i, step in enumerate([lambda x: x + random.random(), lambda x, rng: x + rng.random()])
    ]
    found: dict[int, list[str]] = {}

    def read(i: int) -> None:
        with pipelines[i].loader(backend=backend, workers=2) as loader:
            found[i] = [digest(b) for b in loader]

    threads = [threading.Thread(target=read, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {i: inline(p) for i, p in enumerate(pipelines)}


def test_two_inline_loaders_in_two_threads_share_the_generators_in_turn():
    import random

    pipeline = sv.from_columns({"x": range(300)}).derive(y=lambda x: random.random()).batch(4)
    expected = inline(pipeline)
    found: dict[int, list[str]] = {}

    def read(i: int) -> None:
        found[i] = [digest(b) for b in cut_blocks(pipeline.loader(backend="inline"), [3])]

    threads = [threading.Thread(target=read, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(f == expected for f in found.values())


FORK = """
import os, sys
import silva as sv

pipeline = sv.from_columns({"x": range(40)}).derive(y=lambda x: x * 2).batch(4)
loader = pipeline.loader(backend=BACKEND, workers=2)
expected = [b["y"].tolist() for b in loader]
child = os.fork()
if child == 0:
    found = [b["y"].tolist() for b in loader]
    loader.close()
    print("child", found == expected, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print("parent", [b["y"].tolist() for b in loader] == expected, flush=True)

batches = iter(loader)
next(batches)
child = os.fork()
if child == 0:
    try:
        print("child", [b["y"].tolist() for b in batches] == expected[1:])
    except sv.LoaderError as error:
        print("child", "fork" in str(error))
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
print("parent", 1 + len(list(batches)), flush=True)
loader.close()
"""


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_a_loader_works_in_a_forked_child_and_an_iterator_says_if_not(tmp_path, backend):
    text = FORK.replace("BACKEND", repr(backend)).replace("range(40)", "range(4000)")
    out = run_script(tmp_path, text).split("\n")
    assert out[:3] == ["child True", "parent True", "child True"]
    assert out[3] == "parent 1000"


def test_a_loader_inside_a_step_of_another_works():
    def nested(x):
        inner = sv.from_columns({"v": range(4)}).derive(w=lambda v, rng: rng.random()).batch(4)
        (batch,) = inner.loader(backend="inline", seed=x)
        return float(batch["w"].sum())

    pipeline = sv.from_columns({"x": range(12)}).derive(y=nested).batch(4)
    expected = inline(pipeline)
    for backend in ("threads", "processes"):
        with pipeline.loader(backend=backend, workers=2) as loader:
            assert [digest(b) for b in loader] == expected
