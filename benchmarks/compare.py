"""`python -m benchmarks.compare REVISION [names…]`: is any figure worse than in another commit?

Both versions of silva run in turns, each run in a new process: workloads under the benchmarks of
this working copy, the claims of the planner and the store under those of their own version. What is
compared is CPU seconds, per row or for a claim in small sizes, which other work on the machine
disturbs least. A figure that looks more than 5 % worse after five pairs gets fifteen more. It is
worse only if the 95 % interval of the ratio new / old lies above 1.05.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import run_once
from benchmarks.measure import Ratio, ratio
from benchmarks.store.claims import SHORT as STORE
from benchmarks.workload import Contestant
from benchmarks.workloads import WORKLOADS

_ROOT = Path(__file__).parents[1]
_PAIRS = 5
_MORE = 15
"""Pairs that are added where a figure looks worse."""
_WORSE = 1.05
CLAIMS = {
    "planner": ("filter_last", "projection", "caching", "overhead", "plan_quality", "shared"),
    "store": STORE,
}
"""Claims that every version has and that take as long as their work: some run for a fixed time."""


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


Measure = Callable[[Path], float]
"""CPU seconds of one run with the silva of a folder of sources."""


def measure(run: Measure, old: Path, pairs: int) -> tuple[list[float], list[float]]:
    """CPU seconds of the new and of the old version, pair by pair."""
    found: dict[Path, list[float]] = {_ROOT / "src": [], old: []}
    for number in range(pairs):
        for source in list(found) if number % 2 else list(found)[::-1]:
            found[source].append(run(source))
    return found[_ROOT / "src"], found[old]


def compare(run: Measure, old: Path, pairs: int) -> tuple[Ratio, int]:
    """new / old, and the number of pairs that it took to know."""
    new, before = measure(run, old, pairs)
    found = ratio(new, before)
    if found.median > _WORSE:
        more = measure(run, old, _MORE)
        new, before = new + more[0], before + more[1]
        found = ratio(new, before)
    return found, len(new)


def of_workload(name: str, quick: bool) -> Iterator[tuple[str, Measure]]:
    """Each contestant of a workload that is silva's: CPU seconds per row."""
    workload = WORKLOADS[name].only(is_silva)
    with workload.setting(quick) as settings:
        parameters = {key: value for key, value in settings.items() if key != "data"}
        for contestant in workload.contestants:
            yield (
                f"{name}, {contestant.name}",
                lambda source, it=contestant: float(
                    run_once(workload, it, parameters, source=source)["cpu_row"]
                ),
            )


def of_claims(command: str) -> Iterator[tuple[str, Measure]]:
    """Each claim of `python -m benchmarks.COMMAND --quick`: CPU seconds of the whole command."""
    for claim in CLAIMS[command]:
        yield f"{command}, {claim}", partial(claim_seconds, command, claim)


def claim_seconds(command: str, claim: str, source: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory(prefix="silva-compare-") as folder:
        subprocess.run(
            [
                *(sys.executable, "-m", f"benchmarks.{command}", claim),
                *("--quick", "--json", f"{folder}/found.json"),
            ],
            cwd=source.parent,
            env={**os.environ, "PYTHONPATH": str(source)},
            stdout=subprocess.DEVNULL,
            check=True,
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def is_silva(contestant: Contestant) -> bool:
    return contestant.environment is None and "silva" in contestant.name and not contestant.limit


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("revision")
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join([*WORKLOADS, *CLAIMS]))
    parser.add_argument("--pairs", type=int, default=_PAIRS)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--json", type=Path, help="where to write what was found")
    given = parser.parse_args()
    found: dict[str, Any] = {}
    with checked_out(given.revision) as old:
        for source in (old, _ROOT / "src"):
            compileall.compile_dir(source, quiet=2)
        for name in given.names or [*WORKLOADS, *CLAIMS]:
            for figure, run in (
                of_claims(name) if name in CLAIMS else of_workload(name, given.quick)
            ):
                result, pairs = compare(run, old, given.pairs)
                worse = result.low > _WORSE
                print(
                    f"{'WORSE' if worse else 'ok':5}  {figure}: {result} of the CPU seconds, "
                    f"{pairs} pairs",
                    flush=True,
                )
                ends = [result.median, result.low, result.high]
                found[figure] = {"ratio": ends, "pairs": pairs, "worse": worse}
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if any(figures["worse"] for figures in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
