"""`python -m benchmarks.ray_cluster [what …]`."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.ray_cluster.demand import demand
from benchmarks.ray_cluster.first import first
from benchmarks.ray_cluster.growth import blocks, nodes
from benchmarks.ray_cluster.images import images
from benchmarks.ray_cluster.workers import workers

MEASUREMENTS = {f.__name__: f for f in (images, first, blocks, nodes, workers, demand)}


def main() -> None:
    asked = sys.argv[1:] or list(MEASUREMENTS)
    unknown = [name for name in asked if name not in MEASUREMENTS]
    if unknown:
        sys.exit(f"there is no {unknown[0]!r}; there are {', '.join(MEASUREMENTS)}")
    if len(asked) == 1:
        MEASUREMENTS[asked[0]]()
        return
    sys.exit(max([alone(name) for name in asked]))


def alone(name: str) -> int:
    """A measurement in a process of its own, which Ray may end; whether it failed."""
    print(f"# {name}", flush=True)
    code = subprocess.run([sys.executable, "-m", __spec__.name, name], check=False).returncode
    if code:
        print(f"{name} ended with exit code {code}", flush=True)
    return int(code != 0)


if __name__ == "__main__":
    main()
