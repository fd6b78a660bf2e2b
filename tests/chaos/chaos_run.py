"""`make chaos`: streams that are disturbed at random moments, and a table of what came of it.

`SEED=` draws the same faults in the same order; moments depend on the machine too. `FAULTS=` is how
many (100), `ONLY=` a part of "site: fault". Stops at the first promise that does not
hold, with the log of the trainer.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from random import Random

from chaos_faults import KINDS, Kind
from chaos_sites import ByClient, Local, OnRay, Site
from chaos_trainer import Broken, Undisturbed

SHARES = ((Local, 0.4), (ByClient, 0.08), (OnRay, 0.52))
STREAM = 8
"""Faults in one stream."""
LOG = 6000
"""Characters of a trainer's log that are shown."""


def kinds_at(site: type[Site], only: str) -> list[Kind]:
    """What can be done to a site, where its name or the kind's is asked for."""
    return [k for k in KINDS if site in k.sites and only in f"{site.name}: {k.name}"]


def drawn(kinds: list[Kind], count: int, chance: Random) -> list[Kind]:
    """Every kind once, as far as that goes, and then by weight."""
    more = chance.choices(kinds, [k.weight for k in kinds], k=max(0, count - len(kinds)))
    found = [*chance.sample(kinds, min(count, len(kinds))), *more]
    chance.shuffle(found)
    return found


def disturb(site: Site, kind: Kind, chance: Random) -> str:
    """One fault, and what came of it; the stream goes on before and after."""
    trainer = site.trainer
    assert trainer is not None
    trainer.goes_on(chance.randrange(1, 12), 60)
    time.sleep(chance.uniform(0, 0.3))  # a moment, not a wait: it may fall anywhere
    errors, starts = len(trainer.errors), trainer.starts
    kind.do(site, chance)
    site.settle()
    if trainer.starts > starts:
        return "process ended, resumed"
    if len(trainer.errors) > errors:
        return "clear error, resumed"
    return "same stream"


def streams(site: Site, kinds: list[Kind], chance: Random, table: dict[str, Counter[str]]) -> None:
    """Disturbs streams of a site, so many faults in each."""
    for first in range(0, len(kinds), STREAM):
        trainer = site.begin()
        for kind in kinds[first : first + STREAM]:
            began, seen = time.monotonic(), len(trainer.errors)
            outcome = disturb(site, kind, chance)
            table[f"{site.name}: {kind.name}"][outcome] += 1
            spent = time.monotonic() - began
            print(f"  {site.name}: {kind.name}: {outcome} ({spent:.1f} s)", flush=True)
            for error in trainer.errors[seen:]:
                print(f"    {error}", flush=True)
        site.end()


def run(sites: list[type[Site]], faults: int, seed: int, only: str = "") -> dict[str, Counter[str]]:
    """So many faults, shared by the sites; every outcome by kind."""
    chance, table = Random(seed), defaultdict[str, Counter[str]](Counter)
    shares = [(site, share) for site, share in SHARES if site in sites and kinds_at(site, only)]
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
    if segments := set(os.listdir("/dev/shm")) - before:
        raise Broken(f"segments were left: {segments}")
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
        streams(site, kinds, chance, table)
    except BaseException:
        if site.trainer is not None:
            time.sleep(0.5)  # for the stacks that it may be writing
            print(site.trainer.errors, site.trainer.log.read_text()[-LOG:], sep="\n")
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
    seed = int(os.environ.get("SEED") or time.time())
    faults, only = int(os.environ.get("FAULTS") or 100), os.environ.get("ONLY", "")
    began = time.monotonic()
    print(f"seed {seed}: {faults} faults", flush=True)
    try:
        table = run([Local, ByClient, OnRay], faults, seed, only)
    except Broken as error:
        sys.exit(f"seed {seed}: {error}")
    show(table)
    whole = sum(sum(outcomes.values()) for outcomes in table.values())
    spent = time.monotonic() - began
    print(f"seed {seed}: {whole} faults survived, nothing lost or repeated ({spent:.0f} s)")


if __name__ == "__main__":
    main()
