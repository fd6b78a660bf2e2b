"""A few faults of each site, as `make chaos` draws them by the hundred."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = 300
RUN = str(Path(__file__).with_name("chaos_run.py"))

pytestmark = [pytest.mark.rest, pytest.mark.timeout(SECONDS + 10)]


def disturbed(only: str, faults: int, seed: int) -> None:
    told = {"ONLY": only, "FAULTS": str(faults), "SEED": str(seed)}
    with subprocess.Popen(
        [sys.executable, RUN],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **told},
    ) as process:
        try:
            out, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.terminate()
            out, _ = process.communicate()
    print(out)
    assert process.returncode == 0
    assert f"seed {seed}: {faults} faults survived, nothing lost or repeated" in out


def test_worker_processes_are_disturbed_and_the_stream_is_the_same():
    disturbed("processes: a", 3, seed=1)


@pytest.mark.parametrize("only", ["threads: ", "tables: one", "sinks: one", "service: the line"])
def test_a_site_is_disturbed_and_nothing_is_lost_or_left(only: str):
    disturbed(only, 3, seed=2)


@pytest.mark.parametrize("only", ["inline: ", "threads: ", "tables: ", "sinks: ", "service: "])
def test_a_site_is_disturbed_in_every_way_and_nothing_is_lost_or_left(only: str):
    disturbed(only, 20, seed=4)


@pytest.mark.parametrize("ending", ["Ctrl-C at", "is killed", "is terminated"])
@pytest.mark.parametrize("site", ["inline", "threads", "processes", "tables", "sinks", "service"])
def test_whatever_ends_by_a_signal_leaves_nothing_and_goes_on(site: str, ending: str):
    disturbed(f"{site}: *{ending}", 6, seed=5)


@pytest.mark.parametrize("site", ["ray: a", "ray client: the connection is cut"])
def test_a_cluster_is_disturbed_and_the_stream_is_the_same(site: str):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'silva[ray]'")
    disturbed(site, 5, seed=3)
