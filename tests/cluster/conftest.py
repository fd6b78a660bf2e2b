"""One cluster for all tests of a file: it takes seconds to start. Not for longer, since other tests
count the processes that are there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A Ray of two CPUs to which this process is connected, and to which nodes can be added."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'silva[ray]'")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    ray.init(address=made.address, log_to_driver=False, logging_level="error")
    yield made
    ray.shutdown()
    made.shutdown()
