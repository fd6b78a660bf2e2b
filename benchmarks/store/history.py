"""The claim about features of their time: an as-of join is what its definition says."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

import silva as sv
from benchmarks.claims import Finding
from benchmarks.measure import Children
from benchmarks.store.setting import Sizes

_CHILDREN = Children("benchmarks.store.child")
_USERS, _TIMES = 500, 20_000
"""Few enough times that some are equal."""
_AT_ONCE = 500
"""Rows that the reference compares with all features at a time."""


def as_of_join(sizes: Sizes) -> Iterator[Finding]:
    rows, features = sizes.rows // 2, sizes.rows // 5
    found = _CHILDREN.run("as_of", rows=rows, features=features)
    yield Finding(
        f"as-of join of {rows:,} rows with {features:,}: rows as by comparing all pairs",
        "all",
        f"{found['equal']:,} of {rows:,} ({found['matched']:,} with a match)",
        float(found["equal"]),
        found["equal"] == rows,
    )
    leaks = found["later"] + found["leaks"]
    yield Finding(
        f"as-of join of {rows:,} rows with {features:,}: leaks",
        "0",
        f"{found['later']} values from later than their row; check_leaks: {found['leaks']} in "
        f"{found['compared']} rows",
        float(leaks),
        leaks == 0,
    )


def as_of(rows: int, features: int) -> dict[str, Any]:
    """Both sides are tables, and come back in the order in which these keep them."""
    import pyarrow as pa

    rng = np.random.default_rng(0)
    sides = [
        pa.table({"user": rng.integers(0, _USERS, n), "ts": rng.integers(0, _TIMES, n)})
        for n in (rows, features)
    ]
    with tempfile.TemporaryDirectory(prefix="silva-bench-") as folder:
        spine = sv.Table.create(f"{folder}/spine", sides[0], group="user", time="ts").read()
        named = sides[1].append_column("number", pa.array(np.arange(features)))
        known = sv.Table.create(f"{folder}/known", named.append_column("at", named["ts"]))
        joined = spine.asof_join(known.read(), by="user", on="ts", columns=["number", "at"])
        whole = joined.batch(rows).head(1)[0]
        leaks = joined.check_leaks("ts")
    number, at = (np.ma.filled(np.ma.asarray(whole[name]), -1) for name in ("number", "at"))
    wanted = _by_pairs(whole["user"], whole["ts"], *(named[n].to_numpy() for n in ("user", "ts")))
    return {
        "equal": int((number == wanted).sum()),
        "matched": int((wanted >= 0).sum()),
        "later": int((at > whole["ts"]).sum()),
        "leaks": len(leaks.found),
        "compared": leaks.rows,
    }


def _by_pairs(user: Any, now: Any, other: Any, at: Any) -> np.ndarray:
    """For each row the latest feature of its user that is not later, the last of equal ones; every
    row is compared with every feature."""
    latest_first = np.argsort(at, kind="stable")[::-1]
    other, at = other[latest_first], at[latest_first]
    found = np.full(len(user), -1)
    for start in range(0, len(user), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        counts = (user[some, None] == other) & (at <= now[some, None])
        best = counts.argmax(axis=1)
        found[some] = np.where(counts.any(axis=1), latest_first[best], -1)
    return found
