"""A few faults of each site, as `make chaos` draws them by the hundred."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = 300
RUN = str(Path(__file__).with_name("chaos_run.py"))


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


@pytest.mark.timeout(SECONDS + 10)
def test_worker_processes_are_disturbed_and_the_stream_is_the_same():
    disturbed("processes: a", 3, seed=1)


@pytest.mark.slow  # a cluster takes long to start; tests/cluster has quick ones, on one that lasts
@pytest.mark.timeout(SECONDS + 10)
@pytest.mark.parametrize("site", ["ray: a", "ray client: the connection is cut"])
def test_a_cluster_is_disturbed_and_the_stream_is_the_same(site: str):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'silva[ray]'")
    disturbed(site, 5, seed=3)
