"""Takes fixes out again and shows that the fuzzer finds it: is the generator wide enough?

`python tests/fuzz/mutations.py` prints for each fault how many cases it took. `ONLY=` is a part of
a fault's name, `CASES=` (1000) how many are tried. Each fault is put into a copy of silva by
replacing text, which must be there exactly as often as it says: where the code has changed, a
mutation fails until somebody looks at it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
SEED = 1


@dataclass(frozen=True)
class Mutation:
    """A fault that silva once had."""

    name: str
    changes: tuple[tuple[str, str, str], ...]
    """(file, text, what stood in its place)."""


MUTATIONS = (
    Mutation(
        "a StopIteration ends the block",
        (
            (
                "physical/stage/call.py",
                "if len(arguments) == 1 and type(fn) is FunctionType:",
                "if False:",
            ),
            (
                "physical/stage/call.py",
                "if len(results) == len(rows):  # fewer",
                "if True:  # fewer",
            ),
        ),
    ),
    Mutation(
        "exceptions that are no Exception end the stream",
        (
            (
                "physical/stage/call.py",
                "    except BaseException:\n        if not len(rows):",
                "    except Exception:\n        if not len(rows):",
            ),
        ),
    ),
    Mutation(
        "a row that waits is marked without its pass",
        (
            (
                "run/flows/mix.py",
                "self._session.for_branch(passes).open(",
                "self._session.for_branch(0).open(",
            ),
        ),
    ),
    Mutation(
        "lists lose their type next to other lists",
        (("columns/block.py", "if all(map(rows_show_types, columns)):", "if True:"),),
    ),
    Mutation(
        "a cursor's form depends on failures",
        (
            (
                "run/flows/segment.py",
                "        elif self.explodes:\n",
                "        elif self.explodes or self.failed:\n",
            ),
        ),
    ),
    Mutation(
        "the check of neighbours is spent on a block of one row",
        (
            (
                "physical/stage/call.py",
                "return number & (number - 1) == 0 and (again or is_new)",
                "return number == 1",
            ),
            (
                "physical/stage/steps.py",
                "            and len(rows) > 1\n",
                "            and worker.may_check(self.function)\n            and len(rows) > 1\n",
            ),
            (
                "physical/stage/steps.py",
                "            and worker.may_check(self.function)\n"
                "            and ignores_neighbours",
                "            and ignores_neighbours",
            ),
        ),
    ),
    Mutation(
        "filters are reordered where failures are counted",
        (
            ("rewrite/runner.py", "if rule.reorders and self._counts:", "if False:"),
            ("planner/planner.py", "moves=may_move and not counts,", "moves=may_move,"),
        ),
    ),
    Mutation(
        "who writes into a batch writes into a table",
        (
            (
                "io/arrays/arrow.py",
                "{name: frozen(column) for name, column in table_columns(self.table).items()}",
                "table_columns(self.table)",
            ),
        ),
    ),
    Mutation(
        "rows are drawn by the weights of other rows",
        (
            (
                "physical/lower.py",
                "maps=_without_shuffles(feed.read.maps)",
                "maps=feed.read.maps",
            ),
        ),
    ),
    Mutation(
        "rows share the value that is substituted",
        (
            (
                "physical/stage/context.py",
                "return private(self.substitute)",
                "return self.substitute",
            ),
        ),
    ),
)


class Unfit(Exception):
    """The text that a mutation replaces is not there."""


def mutate(mutation: Mutation, folder: Path) -> Path:
    """A copy of silva with the fault; the folder to import it from."""
    shutil.copytree(SOURCE / "silva", folder / "silva", ignore=shutil.ignore_patterns("*.pyc"))
    for name, text, instead in mutation.changes:
        file = folder / "silva" / name
        found = file.read_text(encoding="utf-8")
        if found.count(text) != 1:
            raise Unfit(f"{mutation.name}: {name} has {found.count(text)} times:\n{text}")
        file.write_text(found.replace(text, instead), encoding="utf-8")
    return folder


def cases_until_found(mutation: Mutation, most: int) -> tuple[int | None, str]:
    """How many cases it took to find a difference (None: it was not found), and what was said."""
    with tempfile.TemporaryDirectory(prefix="silva-mutation-") as folder:
        source = mutate(mutation, Path(folder))
        given = {"ONLY": "", "SEED": str(SEED), "CASES": str(most), "FIRST": "1", "SHRINK": "0"}
        ran = subprocess.run(
            [sys.executable, str(HERE / "fuzz_run.py")],
            env={**os.environ, "PYTHONPATH": str(source), "PROCESSES": "0", **given},
            capture_output=True,
            text=True,
            check=False,
        )
    try:
        line = json.loads(ran.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise RuntimeError(f"{mutation.name}: {ran.stdout}{ran.stderr}") from None
    return (line["pipelines"] if line["differences"] else None), ran.stdout


def main() -> None:
    most, only = int(os.environ.get("CASES") or 1000), os.environ.get("ONLY", "")
    missed = 0
    for mutation in MUTATIONS:
        if only not in mutation.name:
            continue
        cases, said = cases_until_found(mutation, most)
        missed += cases is None
        first = next((line for line in said.splitlines() if line.startswith("===")), "")
        told = f"NOT found in {most} cases" if cases is None else f"found by case {cases}"
        print(f"{mutation.name}: {told}\n    {first[:160]}", flush=True)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
