"""`python -m benchmarks.compare REVISION [names…]`: is any figure worse than in another commit?

Both versions of silva run under the benchmarks of this working copy, in turns, each run in a new
process. What is compared is CPU seconds per row, which other work on the machine disturbs least. A
figure that looks more than 5 % worse after five pairs gets fifteen more. It is worse only if the
95 % interval of the ratio new / old lies above 1.05.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import run_once
from benchmarks.measure import Ratio, ratio
from benchmarks.workload import Contestant, Workload
from benchmarks.workloads import WORKLOADS

_ROOT = Path(__file__).parents[1]
_PAIRS = 5
_MORE = 15
"""Pairs that are added where a figure looks worse."""
_WORSE = 1.05


@contextlib.contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """The `src` folder of a commit."""
    with tempfile.TemporaryDirectory(prefix="silva-compare-") as folder:
        git = ["git", "-C", str(_ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", f"{folder}/old", revision], check=True)
        try:
            yield Path(folder) / "old" / "src"
        finally:
            subprocess.run([*git, "remove", "--force", f"{folder}/old"], check=True)


def measure(
    workload: Workload, contestant: Contestant, parameters: dict[str, Any], old: Path, pairs: int
) -> tuple[list[float], list[float]]:
    """CPU seconds per row of the new and of the old version, pair by pair."""
    found: dict[Path, list[float]] = {_ROOT / "src": [], old: []}
    for number in range(pairs):
        order = list(found) if number % 2 else list(found)[::-1]
        for source in order:
            run = run_once(workload, contestant, parameters, source=source)
            found[source].append(run["cpu_row"])
    return found[_ROOT / "src"], found[old]


def compare(
    workload: Workload, contestant: Contestant, parameters: dict[str, Any], old: Path, pairs: int
) -> tuple[Ratio, int]:
    """new / old, and the number of pairs that it took to know."""
    new, before = measure(workload, contestant, parameters, old, pairs)
    found = ratio(new, before)
    if found.median > _WORSE:
        more = measure(workload, contestant, parameters, old, _MORE)
        new, before = new + more[0], before + more[1]
        found = ratio(new, before)
    return found, len(new)


def is_silva(contestant: Contestant) -> bool:
    return contestant.environment is None and "silva" in contestant.name and not contestant.limit


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("revision")
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(WORKLOADS))
    parser.add_argument("--pairs", type=int, default=_PAIRS)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--json", type=Path, help="where to write what was found")
    given = parser.parse_args()
    found: dict[str, Any] = {}
    with checked_out(given.revision) as old:
        for source in (old, _ROOT / "src"):
            compileall.compile_dir(source, quiet=2)
        for name in given.names or WORKLOADS:
            workload = WORKLOADS[name].only(is_silva)
            with workload.setting(given.quick) as settings:
                parameters = {key: value for key, value in settings.items() if key != "data"}
                for contestant in workload.contestants:
                    result, pairs = compare(workload, contestant, parameters, old, given.pairs)
                    worse = result.low > _WORSE
                    print(
                        f"{'WORSE' if worse else 'ok':5}  {name}, {contestant.name}: {result} of "
                        f"the CPU seconds per row, {pairs} pairs",
                        flush=True,
                    )
                    figures = {"ratio": [result.median, result.low, result.high], "pairs": pairs}
                    found[f"{name}, {contestant.name}"] = figures | {"worse": worse}
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if any(figures["worse"] for figures in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
