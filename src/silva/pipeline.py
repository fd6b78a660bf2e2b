"""The fluent builder: every verb makes a plan node and returns a new pipeline. No logic lives
here."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from silva.errors import PlanError
from silva.given import Pad, Weights, as_step, derived, groups_of, natural, step_id
from silva.looking import Looking
from silva.order.length import plan_rows
from silva.plan import node as logical
from silva.plan.expr import Call, Col, Expr, RowId
from silva.plan.function import Function, Marks, Stateful, describe, locate
from silva.plan.schema import columns
from silva.plan.verify import is_batched
from silva.profile.machine import parse_bytes
from silva.writing import Writing

_WINDOW = 4096
_PACK_WINDOW = 1024
_OPTIONS = ("optimize", "disable", "shards", "seed", "fidelity")


class Pipeline(Looking, Writing):
    """Rows with named columns, and the steps that derive them.

    >>> import silva as sv
    >>> numbers = sv.from_columns({"x": range(10)})
    >>> even = numbers.derive(half=lambda x: x // 2).filter(sv.col("x") % 2 == 0)
    >>> even.head(2)
    [{'x': 0, 'half': 0}, {'x': 2, 'half': 1}]
    """

    __slots__ = ("plan",)

    def __init__(self, plan: logical.Node) -> None:
        self.plan = plan

    # Columns.

    def derive(
        self,
        function: Any = None,
        /,
        *,
        into: str | Sequence[str] | None = None,
        reads: str | Sequence[str] | None = None,
        **steps: Any,
    ) -> Pipeline:
        """New columns: `derive(y=lambda x: x + 1)`, or several of one function by `into=`.

        A function reads the columns that its parameters are named after; `rng` is the row's random
        generator; `reads=` names them where the parameters do not.

        >>> import silva as sv
        >>> sv.from_columns({"x": [3]}).derive(lambda x: (x, -x), into=("up", "down")).head(1)
        [{'x': 3, 'up': 3, 'down': -3}]
        """
        plan = self.plan
        if function is not None:
            if into is None:
                raise PlanError("derive(function, into=…) needs the names of the columns it makes")
            if not isinstance(into, Sequence):
                raise PlanError(f"derive(into=…) is a name or several, not {into!r}")
            names = (into,) if isinstance(into, str) else tuple(into)
            plan = derived(plan, names, function, reads)
        elif into is not None:
            raise PlanError("derive(into=…) needs a function before it")
        if not steps and function is None:
            raise PlanError("derive needs at least one column: derive(y=lambda x: x + 1)")
        for name, step in steps.items():
            plan = derived(plan, (name,), step, reads)
        return Pipeline(plan)

    def select(self, *names: str) -> Pipeline:
        """Only these columns, in this order.

        >>> import silva as sv
        >>> sv.from_columns({"x": [1], "y": [2]}).select("y").head(1)
        [{'y': 2}]
        """
        self._check(names)
        if not names or len(set(names)) < len(names):
            raise PlanError(f"select needs different columns, not {names}")
        return Pipeline(logical.Select(self.plan, names))

    def drop(self, *names: str) -> Pipeline:
        """All columns but these."""
        self._check(names)
        kept = tuple(n for n in columns(self.plan) if n not in names)
        return Pipeline(logical.Select(self.plan, kept))

    def rename(self, names: Mapping[str, str] | None = None, /, **more: str) -> Pipeline:
        """Other names: `rename(old="new")`, or `rename({"a.b": "b"})`.

        >>> import silva as sv
        >>> sv.from_columns({"x": [1]}).rename(x="z").head(1)
        [{'z': 1}]
        """
        pairs = {**(names or {}), **more}
        self._check(tuple(pairs))
        after = [pairs.get(n, n) for n in columns(self.plan)]
        twice = sorted({n for n in after if after.count(n) > 1})
        if twice:
            raise PlanError(f"rename would give two columns the name {twice[0]!r}")
        return Pipeline(logical.Rename(self.plan, tuple(pairs.items())))

    def map_rows(self, function: Any, *, into: Sequence[str] | None = None) -> Pipeline:
        """Replaces each row by what a function of the whole row (a dict) returns: a barrier.

        `into=` names the columns; without it the first row is run to find out.

        >>> import silva as sv
        >>> sv.from_columns({"x": [1, 2]}).map_rows(lambda row: {"y": row["x"] * 10}).head(1)
        [{'y': 10}]
        """
        step = Function(function, ("row",), marks=getattr(function, "__silva__", Marks()))
        if not callable(function) and not isinstance(function, Stateful):
            raise PlanError(f"map_rows takes a function of a row, not {function!r}")
        names = _names_of_first(self, function) if into is None else tuple(into)
        return Pipeline(logical.MapRows(self.plan, step, names, step_id(self.plan, "map_rows")))

    def join(
        self,
        other: Any,
        on: str | Sequence[str] | Mapping[str, str],
        *,
        how: Literal["left", "inner"] = "left",
        columns: str | Sequence[str] | None = None,
    ) -> Pipeline:
        """Columns of another pipeline, Arrow table or dict of columns, by equal keys.

        The other side is held in memory; no two of its rows may have the same key. Without a match
        the new columns are null, or with `how="inner"` the row goes. `on` names the key columns, or
        maps those here to those there; `columns` are the ones to add, all by default.

        >>> import silva as sv
        >>> prices = {"item": ["tea", "jam"], "price": [3.5, 2.0]}
        >>> sv.from_columns({"item": ["jam", "oil"]}).join(prices, on="item").head(2)
        [{'item': 'jam', 'price': 2.0}, {'item': 'oil', 'price': None}]
        """
        from silva.joins.build import join

        return Pipeline(join(self.plan, other, on, how, columns))

    def asof_join(
        self,
        features: Any,
        *,
        by: str | Sequence[str] | Mapping[str, str],
        on: str | Mapping[str, str],
        ttl: Any = None,
        lag: Any = None,
        available: str | None = None,
        columns: str | Sequence[str] | None = None,
    ) -> Pipeline:
        """Columns of the latest row of `features` that was known by the time of each row here.

        `by` are the key columns and `on` the column of times (or maps from ours to theirs). A row
        counts from its time plus `lag` on, and from the time in its column `available`; and until
        its time plus `ttl`. Of equal times the last row counts. No row sees the future.

        >>> import silva as sv
        >>> clicks = sv.from_columns({"user": [1, 1, 2], "ts": [10, 30, 30]})
        >>> counts = {"user": [1, 1], "ts": [5, 20], "seen": [1, 2]}
        >>> [row["seen"] for row in clicks.asof_join(counts, by="user", on="ts")]
        [1, 2, None]
        """
        from silva.joins.build import asof_join

        limits = {"ttl": ttl, "lag": lag, "available": available}
        return Pipeline(asof_join(self.plan, features, by, on, wanted=columns, **limits))

    # Rows.

    def filter(self, condition: Any, *, reads: str | Sequence[str] | None = None) -> Pipeline:
        """Only the rows for which a function or an expression is true.

        >>> import silva as sv
        >>> sv.from_columns({"x": range(5)}).filter(lambda x: x > 2).head(5)
        [{'x': 3}, {'x': 4}]
        """
        step = as_step(self.plan, condition, reads)
        return Pipeline(logical.Filter(self.plan, step, step_id(self.plan, "filter")))

    def explode(self, column: str) -> Pipeline:
        """One row for each item of a list column.

        >>> import silva as sv
        >>> sv.from_items([{"x": 1, "tags": ["a", "b"]}]).explode("tags").head(5)
        [{'x': 1, 'tags': 'a'}, {'x': 1, 'tags': 'b'}]
        """
        self._check((column,))
        return self._add(logical.Explode(self.plan, column))

    def take(self, count: int) -> Pipeline:
        """The first `count` rows."""
        return Pipeline(logical.Take(self.plan, natural("take", count)))

    def skip(self, count: int) -> Pipeline:
        """All rows after the first `count`."""
        return self._add(logical.Skip(self.plan, natural("skip", count)))

    def shuffle(
        self,
        seed: int = 0,
        *,
        kind: Literal["global", "two-level", "window"] | None = None,
        window: int = _WINDOW,
        by: str | None = None,
        max_per_group: int | None = None,
    ) -> Pipeline:
        """Rows in a random order, another one every epoch.

        Global where reading any row costs the same (files, arrays, tables); for chunked formats the
        chunks are permuted and then rows within windows; for streams, windows only.

        `by="group"` keeps the rows of each group of a table together, at most `max_per_group` at a
        time: they share what they have in common, and batches are mixed less well.

        >>> import silva as sv
        >>> rows = sv.from_columns({"x": range(5)}).shuffle(seed=1)
        >>> sorted(row["x"] for row in rows.head(5))
        [0, 1, 2, 3, 4]
        """
        if kind not in (None, "global", "two-level", "window"):
            raise PlanError(f"shuffle kinds are 'global', 'two-level' and 'window', not {kind!r}")
        natural("shuffle(window=…)", window, least=1)
        if by is None and max_per_group is not None:
            raise PlanError("shuffle(max_per_group=…) needs by='group'")
        if by is not None and kind is not None:
            raise PlanError("shuffle(by=…) has no kinds: whole groups are permuted globally")
        if max_per_group is not None:
            natural("shuffle(max_per_group=…)", max_per_group, least=1)
        return self._add(logical.Shuffle(self.plan, int(seed), kind, window, by, max_per_group))

    def sample(
        self,
        weights: Any = None,
        *,
        balance: str | None = None,
        size: int | None = None,
        seed: int = 0,
    ) -> Pipeline:
        """Rows drawn with replacement: by weight, or each value of `balance` equally often.

        >>> import silva as sv
        >>> rows = sv.from_columns({"x": [0, 1]}).sample(weights=[0, 1], size=3)
        >>> [row["x"] for row in rows.head(3)]
        [1, 1, 1]
        """
        if (weights is None) == (balance is None):
            raise PlanError("sample needs either weights=… or balance=…")
        name = balance if balance is not None else weights
        if isinstance(name, str):
            self._check((name,))
        given = weights if weights is None or isinstance(weights, str) else Weights(weights)
        if size is not None:
            natural("sample(size=…)", size)
        return self._add(logical.Sample(self.plan, given, balance, size, int(seed)))

    def split(self, *, by: str | Sequence[str] | None = None, salt: int = 0, **parts: float) -> Any:
        """Parts of the rows, told apart by a hash: a row stays in its part as the data grows.

        `by` names the columns that are hashed (rows with equal values stay together); without it
        the row's place in its source.

        >>> import silva as sv
        >>> train, val = sv.from_columns({"x": range(1000)}).split(train=0.9, val=0.1, by="x")
        >>> val.count() + train.count()
        1000
        """
        total = sum(parts.values())
        if not parts or any(p < 0 for p in parts.values()) or not 0 < total <= 1 + 1e-9:
            raise PlanError(f"split takes shares that add up to at most 1: {parts}")
        names = () if by is None else (by,) if isinstance(by, str) else tuple(by)
        self._check(names)
        terms = tuple(Col(n) for n in names) or (RowId(),)
        place = Expr(Call("hash_fraction", terms, (("salt", salt),)))
        made, low = [], 0.0
        for share in parts.values():
            inside = (place >= low) & (place < low + share)
            low += share
            made.append(self.filter(inside))
        return namedtuple("Split", list(parts))(*made)

    # Groups of rows.

    def batch(
        self,
        size: int | None = None,
        *,
        per_rank: int | None = None,
        tokens: int | None = None,
        by: str | None = None,
        drop_last: bool = False,
        pad: Any = None,
        collate: Any = None,
        grouped: str | Sequence[str] | Sequence[Sequence[str]] = (),
    ) -> Pipeline:
        """Rows in batches; what follows sees batches.

        `size` is the global batch; `per_rank` counts rows on each rank; `tokens` with `by` fills
        batches up to a number of padded tokens. `pad` is a value (or a dict of them) for rows of
        different lengths; `collate` a function of your own, given the rows as a list of dicts.
        `grouped` names columns that a batch holds as `sv.Grouped`: each distinct row once, and an
        index. `("hist", "clicks")` share one index; `[("hist", "clicks"), ("tags",)]` have two.

        >>> import silva as sv
        >>> rows = sv.from_items([{"t": [1, 2]}, {"t": [3]}]).batch(2, pad=0)
        >>> rows.head(1)[0]["t"].tolist()
        [[1, 2], [3, 0]]
        """
        if sum(x is not None for x in (size, per_rank, tokens)) != 1:
            raise PlanError("batch takes one of: a number of rows, per_rank=…, tokens=…")
        for name, value in (("size", size), ("per_rank", per_rank), ("tokens", tokens)):
            if value is not None:
                natural(f"batch({name})", value, least=1)
        if (tokens is None) != (by is None):
            raise PlanError("batch(tokens=…, by=…): `by` names the column whose length counts")
        if by is not None:
            self._check((by,))
        function = None
        if collate is not None:
            function = Function(collate, (), marks=getattr(collate, "__silva__", Marks()))
        if isinstance(pad, dict):
            self._check(tuple(pad))
        groups = groups_of(grouped)
        self._check(tuple(name for group in groups for name in group))
        if groups and function is not None:
            raise PlanError("batch(grouped=…) and collate=… both say what a batch is: give one")
        filled = Pad.of(pad)
        return self._add(
            logical.Batch(
                self.plan, size, per_rank, tokens, by, drop_last, filled, function, groups
            )
        )

    def pack(
        self,
        column: str | Sequence[str],
        length: int,
        *,
        window: int = _PACK_WINDOW,
        pad: int = 0,
        overflow: Literal["split", "truncate", "error"] = "split",
    ) -> Pipeline:
        """Token sequences packed into rows of `length`, with `segment_ids` and `positions`.

        Within each window of rows the best fit is found; a sequence longer than `length` is split.

        >>> import silva as sv
        >>> row = sv.from_items([{"t": [1, 2]}, {"t": [3]}]).pack("t", 4).head(1)[0]
        >>> row["t"].tolist(), row["segment_ids"].tolist(), row["positions"].tolist()
        ([1, 2, 3, 0], [1, 1, 2, 0], [0, 1, 0, 0])
        """
        names = (column,) if isinstance(column, str) else tuple(column)
        self._check(names)
        if overflow not in ("split", "truncate", "error"):
            raise PlanError(f"pack(overflow=…) is 'split', 'truncate' or 'error', not {overflow!r}")
        natural("pack(length)", length, least=1)
        natural("pack(window=…)", window, least=1)
        return self._add(logical.Pack(self.plan, names, length, window, int(pad), overflow))

    def bucket(
        self, by: str, sizes: Mapping[int, int], *, drop_last: bool = False, pad: Any = None
    ) -> Pipeline:
        """Batches of rows of like length: `sizes` maps the longest of a bucket to its batch size.

        >>> import silva as sv
        >>> rows = sv.from_items([{"t": [1]}, {"t": [1, 2, 3]}, {"t": [2]}])
        >>> [b["t"].tolist() for b in rows.bucket("t", {1: 2, 4: 1}, pad=0).head(2)]
        [[[1, 2, 3]], [[1], [2]]]
        """
        self._check((by,))
        pairs = tuple(sorted((int(n), int(rows)) for n, rows in sizes.items()))
        if not pairs or any(n < 0 or rows < 1 for n, rows in pairs):
            raise PlanError(f"bucket(sizes=…) maps lengths to numbers of rows, not {sizes!r}")
        return self._add(logical.Bucket(self.plan, by, pairs, drop_last, Pad.of(pad)))

    def cache(
        self,
        folder: str | Path | None = None,
        *,
        shared: bool = False,
        limit: str | int | None = None,
    ) -> Pipeline:
        """Keeps rows once they are computed: in memory; in a folder, or below an address
        (`s3://`, `gs://`, `az://`), for later runs and other processes; or with `shared=True` where
        all pipelines of this user share them (`$SILVA_CACHE`, or else `silva/rows` where the system
        keeps caches).

        A folder holds at most `limit` bytes, e.g. `"20GiB"`, of all pipelines that use it. When it
        is full, the rows that save the least computing for their bytes and have not been used for
        longest go first. Without a limit, it leaves a twentieth of the disk free, and fills an
        object store without end.

        >>> import silva as sv
        >>> cached = sv.from_columns({"x": range(3)}).derive(y=lambda x: x * x).cache()
        """
        if shared:
            if folder is not None:
                raise PlanError("cache(…) takes a folder or shared=True, not both")
            from silva.run.cache_folder import shared_place

            folder = shared_place()
        if folder is None and limit is not None:
            raise PlanError(
                "cache(limit=…) bounds a folder: give one, or shared=True; rows in memory stay "
                "within half of loader(memory=…)"
            )
        from silva.run.open_shelf import place_of

        path = None if folder is None else place_of(folder)
        bound = None if limit is None else parse_bytes(limit)
        return self._add(logical.Cache(self.plan, path, bound))

    def options(self, **values: Any) -> Pipeline:
        """How the pipeline is run: `optimize=False` as written, `shards=12`, `seed=1`,
        `disable=["rule"]`, `fidelity="close"`."""
        unknown = sorted(set(values) - set(_OPTIONS))
        if unknown:
            raise PlanError(f"there is no option {unknown[0]!r}; options are {', '.join(_OPTIONS)}")
        if "shards" in values:
            natural("options(shards=…)", values["shards"], least=1)
        if values.get("fidelity", "exact") not in ("exact", "close"):
            raise PlanError(f"fidelity is 'exact' or 'close', not {values['fidelity']!r}")
        if "disable" in values:
            values["disable"] = tuple(values["disable"])
        return Pipeline(logical.Options(self.plan, tuple(values.items())))

    # Running.

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """One epoch, with everything chosen for you."""
        return iter(self.loader())

    def head(self, count: int = 5) -> list[dict[str, Any]]:
        """The first rows (or batches), run here and now."""
        with self._whole(backend="inline") as loader:
            found: list[dict[str, Any]] = []
            for row in loader:
                if len(found) >= count:
                    break
                found.append(row)
                if len(found) == count:
                    break
            return found

    def count(self) -> int:
        """Number of rows (or batches); runs the pipeline only where that is needed to know."""
        known = plan_rows(self.plan)
        if known is not None:
            return known
        return sum(1 for _ in self._whole())

    def row(self, key: str, *, epoch: int = 0) -> Any:
        """Runs one row alone, here and now, by the key that an error message shows.

        >>> import silva as sv
        >>> sv.from_columns({"x": range(9)}).derive(y=lambda x: x * x).row("0:5")
        {'x': 5, 'y': 25}
        """
        from silva.rerun import rerun

        return rerun(self.plan, key, epoch=epoch)

    def _check(self, names: tuple[str, ...]) -> None:
        there = columns(self.plan)
        for name in names:
            if name not in there:
                shown = ", ".join(map(repr, there)) or "(none)"
                raise PlanError(f"there is no column {name!r}; the columns here are {shown}")

    def _add(self, node: logical.Node) -> Pipeline:
        if is_batched(self.plan):
            raise PlanError(f"{node.verb} works on rows and must come before batch")
        return Pipeline(node)


def _names_of_first(pipeline: Pipeline, function: Any) -> tuple[str, ...]:
    """The columns that a whole-row function gives, found by running it on the first row."""
    first = pipeline.head(1)
    if not first:
        return columns(pipeline.plan)
    build = function.build() if isinstance(function, Stateful) else function
    made = build(first[0])
    if not isinstance(made, dict):
        raise PlanError(
            f"map_rows: {describe(function)} ({locate(function)}) must return a dict of columns, "
            f"not {type(made).__name__}"
        )
    return tuple(made)
