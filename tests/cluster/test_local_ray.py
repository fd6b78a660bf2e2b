"""A Ray that silva starts ends with it, however that ends; what cannot be is refused."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from failure_tools import run_script, start_script, until

import silva as sv
from silva.errors import PlanError

pytest.importorskip("ray", reason="Ray is not installed: pip install 'silva[ray]'")

pytestmark = pytest.mark.rest

READING = """
import os, sys, tempfile
tempfile.tempdir = sys.argv[1]
import silva as sv

pipeline = sv.from_columns({"x": range(10_000)}).derive(y=lambda x: x + 1).batch(4)
loader = pipeline.loader(backend="ray", cluster="local", workers=1)
"""
TWO_BATCHES = """
import ray, threading
batches = iter(loader)
first = threading.Thread(target=lambda: print(next(batches)["y"].tolist()))
first.start()
first.join()  # what it started must not end with it
for batch in batches:
    print(batch["y"].tolist())
    break
batches.close()
assert not ray.is_initialized()
assert not os.listdir(sys.argv[1]), os.listdir(sys.argv[1])
"""
FOR_EVER = """
while True:
    loader.set_epoch(0)
    for batch in loader:
        print("read", flush=True)
"""


@pytest.fixture
def short() -> Iterator[str]:
    """A folder with a short name: sockets cannot have long ones."""
    with tempfile.TemporaryDirectory(prefix="sv") as folder:
        yield folder


def descendants(process: int) -> list[psutil.Process]:
    return psutil.Process(process).children(recursive=True)


def test_leaving_the_loop_stops_the_ray_that_it_started(tmp_path: Path, short: str):
    out = run_script(tmp_path, READING + TWO_BATCHES, short, seconds=100)
    assert out.splitlines() == ["[1, 2, 3, 4]", "[5, 6, 7, 8]"]


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_of_a_trainer_that_is_ended(tmp_path: Path, short: str, ending: int):
    trainer = start_script(tmp_path, READING + FOR_EVER, short)
    try:
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == "read\n"
        # of a killed parent, Ray's two agents take a minute to find out; they hold nothing
        started = [p for p in descendants(trainer.pid) if "Agent" not in p.name()]
        assert {"raylet", "gcs_server"} <= {p.name() for p in started}
        os.kill(trainer.pid, ending)
        trainer.communicate(timeout=60)
    finally:
        trainer.kill()
    until(lambda: not psutil.wait_procs(started, timeout=0)[1], seconds=30)


def test_what_cannot_be_is_refused_at_once():
    pipeline = sv.from_columns({"x": range(4)}).batch(2)
    for options in (
        {"backend": "ray"},
        {"cpus": 2},
        {"cluster": "here"},
        {"cluster": "auto", "cpus": 0},
    ):
        with pytest.raises(PlanError):
            pipeline.loader(**options)
