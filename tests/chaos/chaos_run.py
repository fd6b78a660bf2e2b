"""`make chaos`: trainers, tables, sinks, services and clusters are disturbed at random moments,
and a table says what came of it.

`SEED=` draws the same faults in the same order; moments depend on the machine too. `FAULTS=` is how
many (300), `ONLY=` a part of "site: fault" (`*` for anything between). Stops at the first promise
that does not hold, with the logs of the processes and their stacks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random

import chaos_ray_faults
import chaos_service
import chaos_sinks
import chaos_stream_faults
import chaos_tables
from chaos_child import Broken
from chaos_faults import Kind
from chaos_ray import ByClient, OnRay
from chaos_service import Serving
from chaos_sinks import Writing
from chaos_site import Site, mounted
from chaos_streams import Inline, InProcesses, OnThreads
from chaos_tables import Tables
from chaos_trainer import Undisturbed

SHARES: tuple[tuple[type[Site], float], ...] = (
    (Inline, 0.06),
    (OnThreads, 0.08),
    (InProcesses, 0.18),
    (Tables, 0.2),
    (Writing, 0.12),
    (Serving, 0.16),
    (ByClient, 0.03),
    (OnRay, 0.17),
)
KINDS: tuple[Kind, ...] = (
    *chaos_stream_faults.KINDS,
    *chaos_tables.KINDS,
    *chaos_sinks.KINDS,
    *chaos_service.KINDS,
    *chaos_ray_faults.KINDS,
)
FAULTS = 300
LOG = 6000
"""Characters of a process's log that are shown."""


def kinds_at(site: type[Site], only: str) -> list[Kind]:
    """What can be done to a site, where its name or the kind's is asked for."""
    wanted = f"*{only}*"
    return [k for k in KINDS if site in k.sites and fnmatchcase(f"{site.name}: {k.name}", wanted)]


def drawn(kinds: list[Kind], count: int, chance: Random) -> list[Kind]:
    """Every kind once, as far as that goes, and then by weight."""
    more = chance.choices(kinds, [k.weight for k in kinds], k=max(0, count - len(kinds)))
    found = [*chance.sample(kinds, min(count, len(kinds))), *more]
    chance.shuffle(found)
    return found


def disturb(site: Site, kind: Kind, chance: Random) -> str:
    """One fault, and what came of it; all goes on before and after."""
    site.go_on(chance.randrange(1, 1 + site.steps // 2 + 1))
    time.sleep(chance.uniform(0, 0.3))  # a moment, not a wait: it may fall anywhere
    errors, starts = len(site.errors), site.starts
    kind.do(site, chance)
    site.settle()
    if site.starts > starts:
        return "process ended, resumed"
    if len(site.errors) > errors:
        return "clear error, resumed"
    return "nothing noticed"


def rounds(site: Site, kinds: list[Kind], chance: Random, table: dict[str, Counter[str]]) -> None:
    """Disturbs what a site runs, so many faults in each round."""
    for first in range(0, len(kinds), site.faults):
        site.begin()
        for kind in kinds[first : first + site.faults]:
            began, seen = time.monotonic(), len(site.errors)
            what = f"{site.name}: {kind.name}"
            print(f"  {what}: ", end="", flush=True)
            outcome = disturb(site, kind, chance)
            table[what][outcome] += 1
            print(f"{outcome} ({time.monotonic() - began:.1f} s)", flush=True)
            for error in sorted(set(site.errors[seen:])):
                print(f"    {error}", flush=True)
        site.end()


def run(faults: int, seed: int, only: str = "") -> dict[str, Counter[str]]:
    """So many faults, shared by the sites; every outcome by kind."""
    chance, table = Random(seed), defaultdict[str, Counter[str]](Counter)
    shares = [(site, share) for site, share in SHARES if kinds_at(site, only)]
    whole = sum(share for _, share in shares)
    left, before = faults, set(os.listdir("/dev/shm"))
    expected = Undisturbed()
    try:
        for site, share in shares:
            count = left if site is shares[-1][0] else round(faults * share / whole)
            left -= count
            if count:
                kinds = drawn(kinds_at(site, only), count, chance)
                disturbed(site, expected, kinds, chance, table)
    finally:
        expected.close()
    if files := set(os.listdir("/dev/shm")) - before:
        raise Broken(f"files were left in shared memory: {files}")
    return table


def disturbed(
    make: type[Site],
    expected: Undisturbed,
    kinds: list[Kind],
    chance: Random,
    table: dict[str, Counter[str]],
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    site = make(folder, expected)
    try:
        if not site.has_disk:
            print("  no small disk can be mounted here: none is filled")
            kinds = [kind for kind in kinds if not kind.needs_disk]
        rounds(site, kinds, chance, table)
    except BaseException:
        time.sleep(0.5)  # for the stacks that somebody may be writing
        print(*site.errors[-20:], sep="\n")
        for child in site.all_children:
            print(f"--- {child.name} ({child.starts} starts)", child.log()[-LOG:], sep="\n")
        raise
    finally:
        site.close()
    shutil.rmtree(folder)


def show(table: dict[str, Counter[str]]) -> None:
    width = max(map(len, table))
    for name, outcomes in sorted(table.items()):
        told = ", ".join(f"{count} × {what}" for what, count in outcomes.most_common())
        print(f"{name:{width}}  {sum(outcomes.values()):3}  {told}")


def within_own_mounts() -> None:
    """Goes on as a process whose mounts end with it, where the system allows that."""
    own = ["unshare", "--map-root-user", "--mount"] if os.getuid() else ["unshare", "--mount"]
    if "CHAOS_MOUNTS" in os.environ or shutil.which("unshare") is None:
        return
    if subprocess.run([*own, "true"], capture_output=True, check=False).returncode == 0:
        words = [*own, sys.executable, *sys.argv]
        os.execvpe("unshare", words, {**os.environ, "CHAOS_MOUNTS": "own"})


def main() -> None:
    within_own_mounts()
    if "CHAOS_MOUNTS" in os.environ:
        mounted(Path("/dev/shm"), "1g")  # what others leave there is not ours
    seed = int(os.environ.get("SEED") or time.time())
    faults, only = int(os.environ.get("FAULTS") or FAULTS), os.environ.get("ONLY", "")
    began = time.monotonic()
    print(f"seed {seed}: {faults} faults", flush=True)
    try:
        table = run(faults, seed, only)
    except Broken as error:
        sys.exit(f"seed {seed}: {error}")
    show(table)
    whole = sum(sum(outcomes.values()) for outcomes in table.values())
    spent = time.monotonic() - began
    print(f"seed {seed}: {whole} faults survived, nothing lost or repeated ({spent:.0f} s)")


if __name__ == "__main__":
    main()
