"""`Pipeline`, the fluent builder: every verb adds a node to the plan and returns a new pipeline.

Verbs check their arguments and build nodes; they run nothing.
"""

from __future__ import annotations

import warnings
from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from silva.arguments import PadValues, Weights, add_derive, condition_of, groups_of, step_id
from silva.cost.machine import parse_bytes
from silva.errors import PlanError
from silva.inspect import InspectVerbs
from silva.order.length import plan_rows
from silva.order.state import MOST_SHARDS
from silva.plan import node as logical
from silva.plan.arguments import (
    explains_verbs,
    flag,
    missing,
    name_of,
    names_of,
    natural,
    number,
    one_of,
    path_of,
    unknown,
    whole,
)
from silva.plan.expr import Call, Col, Expr, RowId
from silva.plan.function import Function, Marks, Stateful, describe, locate
from silva.plan.hints import ARGUMENTS, METHODS
from silva.plan.open import refuses_choices
from silva.plan.schema import MOST_POSITIONS, POSITIONS, SEGMENTS, columns, is_batched, is_random
from silva.serving import ServeVerbs
from silva.writing import WriteVerbs

_WINDOW = 4096
_PACK_WINDOW = 1024
_SAME_EPOCH = (
    "each loop over a pipeline reads epoch 0: the order and all random numbers are the same as in "
    "the loop before. For another order in every epoch, reuse one loader, loader = "
    "pipeline.loader(), where each `for batch in loader` is the next epoch; or call set_epoch(n)"
)
_BY_GROUP = (
    "to keep the rows of a group together, write shuffle(by='column') with the name of the column "
    "that the table is grouped by"
)
_OPTIONS = ("optimize", "disable", "shards", "seed", "fidelity")


@refuses_choices("derive", "filter")
@explains_verbs
class Pipeline(InspectVerbs, WriteVerbs, ServeVerbs):
    """Rows with named columns, and the steps that derive them.

    A pipeline is a value: each verb (`derive`, `filter`, `shuffle`, `batch`, …) returns a new
    pipeline and runs nothing. Start with a source such as `sv.read_files` or `sv.from_columns`, and
    read the result with `loader()`.

    >>> import silva as sv
    >>> numbers = sv.from_columns({"x": range(10)})
    >>> even = numbers.derive(half=lambda x: x // 2).filter(sv.col("x") % 2 == 0)
    >>> even.head(2)
    [{'x': 0, 'half': 0}, {'x': 2, 'half': 1}]
    """

    __slots__ = ("_reads", "plan")

    def __init__(self, plan: logical.Node) -> None:
        self.plan = plan
        self._reads = 0
        self._program = None

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
        """Adds columns: `derive(y=lambda x: x + 1)`.

        A step is a function or an expression. A function reads the columns that its parameters are
        named after; a parameter `rng` is the row's random generator. Pass `reads=` if the
        parameters have other names, and `into=` if one function returns several columns. A column
        that exists already is replaced. Functions must be pure, or marked with `@sv.impure`.

        >>> import silva as sv
        >>> sv.from_columns({"x": [3]}).derive(y=lambda x: x + 1, z=sv.col("x") * 2).head(1)
        [{'x': 3, 'y': 4, 'z': 6}]
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
            plan = add_derive(plan, names, function, reads)
        elif into is not None:
            raise PlanError("derive(into=…) needs a function before it")
        if not steps and function is None:
            raise PlanError("derive needs at least one column: derive(y=lambda x: x + 1)")
        for name, step in steps.items():
            if name in ARGUMENTS["derive"] and not (callable(step) or isinstance(step, Expr)):
                raise unknown("derive", name, ())
            plan = add_derive(plan, (name,), step, reads)
        return Pipeline(plan)

    def select(self, *names: str) -> Pipeline:
        """Keeps only these columns, in this order. Steps whose columns are not kept do not run.

        >>> import silva as sv
        >>> sv.from_columns({"x": [1], "y": [2]}).select("y").head(1)
        [{'y': 2}]
        """
        self._check_each("select", names)
        if not names or len(set(names)) < len(names):
            raise PlanError(f"select needs different columns, not {names}")
        return Pipeline(logical.Select(self.plan, names))

    def drop(self, *names: str) -> Pipeline:
        """Removes these columns.

        >>> import silva as sv
        >>> sv.from_columns({"x": [1], "y": [2]}).drop("x").head(1)
        [{'y': 2}]
        """
        self._check_each("drop", names)
        kept = tuple(n for n in columns(self.plan) if n not in names)
        return Pipeline(logical.Select(self.plan, kept))

    def rename(self, names: Mapping[str, str] | None = None, /, **more: str) -> Pipeline:
        """Renames columns: `rename(old="new")`, or `rename({"a.b": "b"})`.

        >>> import silva as sv
        >>> sv.from_columns({"x": [1]}).rename(x="z").head(1)
        [{'z': 1}]
        """
        if names is not None and not isinstance(names, Mapping):
            raise PlanError(f"rename takes old names and new ones, {{'old': 'new'}}, not {names!r}")
        pairs = {**(names or {}), **more}
        there = columns(self.plan)
        for old, new in pairs.items():
            if old not in there and new in there:
                raise PlanError(
                    f"there is no column {old!r}: rename takes the old name first, "
                    f"rename({{{new!r}: {old!r}}})"
                )
        self._check(tuple(pairs))
        for name in pairs.values():
            if not name_of("rename(old=…)", name):
                raise PlanError("a column's name is a non-empty string, not ''")
        after = [pairs.get(n, n) for n in columns(self.plan)]
        twice = sorted({n for n in after if after.count(n) > 1})
        if twice:
            raise PlanError(f"rename would give two columns the name {twice[0]!r}")
        return Pipeline(logical.Rename(self.plan, tuple(pairs.items())))

    def map_rows(self, function: Any, *, into: Sequence[str] | None = None) -> Pipeline:
        """Replaces each row by the dict that a function of the whole row (a dict) returns.

        silva cannot see which columns such a function reads, so no step moves across it: prefer
        `derive`. `into=` names the resulting columns; without it, silva runs the first row to find
        them.

        >>> import silva as sv
        >>> sv.from_columns({"x": [1, 2]}).map_rows(lambda row: {"y": row["x"] * 10}).head(1)
        [{'y': 10}]
        """
        step = Function(function, ("row",), marks=getattr(function, "__silva__", Marks()))
        if not callable(function) and not isinstance(function, Stateful):
            raise PlanError(f"map_rows takes a function of a row, not {function!r}")
        if into is None:
            names = _names_of_first(self, function)
        elif isinstance(into, str):
            raise PlanError(f"map_rows(into=…) is a list of names, not one string: [{into!r}]")
        else:
            names = names_of("map_rows(into=…)", into)
        return Pipeline(logical.MapRows(self.plan, step, names, step_id(self.plan, "map_rows")))

    def join(
        self,
        other: Any,
        on: str | Sequence[str] | Mapping[str, str],
        *,
        how: Literal["left", "inner"] = "left",
        columns: str | Sequence[str] | None = None,
    ) -> Pipeline:
        """Adds columns of another pipeline, Arrow table or dict of columns, by equal keys.

        The other side is read into memory, and its keys must be unique. `on` names the key columns,
        or maps the names here to the names there. Rows without a match get nulls, or are dropped
        with `how="inner"`. `columns` selects the columns to add; by default all of them.

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
        """Adds columns of the latest row of `features` that was known by the time of each row.

        `by` names the key columns and `on` the column of times, or each maps the names here to the
        names there. A row of `features` counts from its time plus `lag` on, not before the time in
        its column `available`, and until its time plus `ttl`. Of rows with equal times the last one
        counts. No row sees the future.

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
        """Keeps the rows for which a function or an expression is true.

        Write it where it reads best: silva runs it as early as it can. Pass `reads=` if the
        parameters of the function are not named after columns.

        >>> import silva as sv
        >>> sv.from_columns({"x": range(5)}).filter(lambda x: x > 2).head(5)
        [{'x': 3}, {'x': 4}]
        """
        step = condition_of(self.plan, condition, reads)
        return Pipeline(logical.Filter(self.plan, step, step_id(self.plan, "filter")))

    def explode(self, column: str) -> Pipeline:
        """Replaces each row by one row for each item of a list column.

        >>> import silva as sv
        >>> sv.from_items([{"x": 1, "tags": ["a", "b"]}]).explode("tags").head(5)
        [{'x': 1, 'tags': 'a'}, {'x': 1, 'tags': 'b'}]
        """
        if callable(column):
            raise PlanError(
                "explode takes the name of a column of lists, not a function: "
                "derive(items=function).explode('items')"
            )
        self._check((name_of("explode(column)", column),))
        return self._add(logical.Explode(self.plan, column))

    def take(self, count: int) -> Pipeline:
        """Keeps the first `count` rows; after `batch`, the first `count` batches.

        >>> import silva as sv
        >>> sv.from_columns({"x": range(9)}).take(2).head(5)
        [{'x': 0}, {'x': 1}]
        """
        return Pipeline(logical.Take(self.plan, natural("take", count)))

    def skip(self, count: int) -> Pipeline:
        """Drops the first `count` rows.

        >>> import silva as sv
        >>> sv.from_columns({"x": range(9)}).skip(7).head(5)
        [{'x': 7}, {'x': 8}]
        """
        return self._add(logical.SkipRows(self.plan, natural("skip", count)))

    def shuffle(
        self,
        seed: int = 0,
        *,
        kind: Literal["global", "two-level", "window"] | None = None,
        window: int = _WINDOW,
        by: str | None = None,
        max_per_group: int | None = None,
    ) -> Pipeline:
        """Puts rows in a random order, another one in every epoch.

        The shuffle is global if reading any row costs the same (files, arrays, tables). For chunked
        formats (Parquet, text, tar), units such as row groups are permuted, and then rows within
        windows of `window` rows; for streams, rows within windows only. `kind=` forces one of
        these, and is an error where it is impossible.

        `by="session"` keeps the rows of each group of a table together, at most `max_per_group` of
        them, where `session` is the column that the table is grouped by: rows of a batch then share
        values, but batches are less well mixed.

        >>> import silva as sv
        >>> rows = sv.from_columns({"x": range(5)}).shuffle(seed=1)
        >>> sorted(row["x"] for row in rows.head(5))
        [0, 1, 2, 3, 4]
        """
        if isinstance(kind, str) and "group" in kind:
            raise PlanError(f"shuffle has no kind {kind!r}: {_BY_GROUP}")
        one_of("shuffle(kind=…)", kind, None, "global", "two-level", "window")
        whole("shuffle(seed=…)", seed)
        natural("shuffle(window=…)", window, least=1)
        if by is not None:
            name_of("shuffle(by=…)", by)
        if by is None and max_per_group is not None:
            raise PlanError(f"shuffle(max_per_group=…) needs by=…: {_BY_GROUP}")
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
        """Draws rows with replacement: by weight, or each value of `balance` equally often.

        `weights` is a column or one number per row; `size` is the number of rows to draw, by
        default the number of rows that there are. The draw differs in every epoch.

        >>> import silva as sv
        >>> rows = sv.from_columns({"x": [0, 1]}).sample(weights=[0, 1], size=3)
        >>> [row["x"] for row in rows.head(3)]
        [1, 1, 1]
        """
        if (weights is None) == (balance is None):
            raise PlanError("sample needs either weights=… or balance=…")
        name = name_of("sample(balance=…)", balance) if balance is not None else weights
        if isinstance(name, str):
            self._check((name,))
        given = weights if weights is None or isinstance(weights, str) else Weights(weights)
        if size is not None:
            natural("sample(size=…)", size)
        whole("sample(seed=…)", seed)
        return self._add(logical.Sample(self.plan, given, balance, size, int(seed)))

    def split(self, *, by: str | Sequence[str] | None = None, salt: int = 0, **parts: float) -> Any:
        """Splits rows into named parts by a hash, so that a row stays in its part as data grows.

        `by` names the columns to hash, so that rows with equal values stay together; by default the
        place of the row in its source is hashed. `salt` gives another split. Returns a named tuple
        of pipelines.

        >>> import silva as sv
        >>> train, val = sv.from_columns({"x": range(1000)}).split(train=0.9, val=0.1, by="x")
        >>> val.count() + train.count()
        1000
        """
        total = sum(number("split's shares", share) for share in parts.values())
        if not parts or any(p < 0 for p in parts.values()) or not 0 < total <= 1 + 1e-9:
            raise PlanError(f"split takes shares that add up to at most 1: {parts}")
        names = () if by is None else names_of("split(by=…)", by)
        self._check(names)
        whole("split(salt=…)", salt)
        terms = tuple(Col(n) for n in names) or (RowId(),)
        place = Expr(Call("hash_fraction", terms, (("salt", salt),)))
        made, low = [], 0.0
        for share in parts.values():
            inside = (place >= low) & (place < low + share)
            low += share
            made.append(self.filter(inside))
        try:
            return namedtuple("Split", list(parts))(*made)
        except ValueError as error:  # a keyword, a digit or an underscore first
            raise PlanError(f"the parts of split(…) become attributes: {error}") from None

    # Groups of rows.

    def batch(
        self,
        size: int | None = None,
        *,
        per_rank: int | None = None,
        tokens: int | None = None,
        by: str | None = None,
        axis: int | None = None,
        drop_last: bool = False,
        pad: Any = None,
        collate: Any = None,
        grouped: str | Sequence[str] | Sequence[Sequence[str]] = (),
    ) -> Pipeline:
        """Collects rows into batches; the steps that follow see batches.

        Pass one of three sizes. `size` is the number of rows in a global batch, which all ranks
        share; `per_rank` is the number on each rank; `tokens` bounds rows × longest, where `by`
        names the column whose length counts (a longer row is a batch of its own) and `axis` its
        axis, if it has several dimensions.

        `drop_last` drops a last batch that is not full. `pad` is the value, or a dict of values by
        column, that fills up rows of different lengths; a padded batch holds no lengths or mask, so
        derive them before: `derive(n=sv.list("t").length())`. `collate` is your own function from a
        list of dicts to a batch. `grouped` names columns that a batch holds as `sv.Grouped`,
        distinct rows and an index: `("hist", "clicks")` share one index, `[("hist", "clicks"),
        ("tags",)]` have two.

        >>> import silva as sv
        >>> rows = sv.from_items([{"t": [1, 2]}, {"t": [3]}]).batch(2, pad=0)
        >>> rows.head(1)[0]["t"].tolist()
        [[1, 2], [3, 0]]
        """
        if sum(x is not None for x in (size, per_rank, tokens)) != 1:
            raise PlanError("batch takes exactly one of: a number of rows, per_rank=…, tokens=…")
        for name, value in (("size", size), ("per_rank", per_rank), ("tokens", tokens)):
            if value is not None:
                natural(f"batch({name})", value, least=1)
        if (tokens is None) != (by is None):
            raise PlanError("batch(tokens=…, by=…): `by` names the column whose length counts")
        if by is not None:
            self._check((name_of("batch(by=…)", by),))
        if axis is not None and (by is None or isinstance(axis, bool) or not isinstance(axis, int)):
            raise PlanError(f"batch(axis=…) is a whole number, for the column in by=, not {axis!r}")
        flag("batch(drop_last=…)", drop_last)
        function = None
        if collate is not None:
            if not callable(collate):
                raise PlanError(f"batch(collate=…) takes a function of rows, not {collate!r}")
            function = Function(collate, (), marks=getattr(collate, "__silva__", Marks()))
        if isinstance(pad, dict):
            self._check(tuple(pad))
        groups = groups_of(grouped)
        self._check(tuple(name for group in groups for name in group))
        if groups and function is not None:
            raise PlanError("batch(grouped=…) and collate=… both say what a batch is: give one")
        filled = PadValues.of(pad)
        return self._add(
            logical.Batch(
                self.plan, size, per_rank, tokens, by, drop_last, filled, function, groups, axis
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
        """Packs token sequences into rows of `length`, with `segment_ids` and `positions`.

        Sequences are packed by best fit within windows of `window` rows. One longer than `length`
        is split, truncated or an error, as `overflow` says. Several columns of equal lengths are
        packed alike; all other columns are dropped.

        >>> import silva as sv
        >>> row = sv.from_items([{"t": [1, 2]}, {"t": [3]}]).pack("t", 4).head(1)[0]
        >>> row["t"].tolist(), row["segment_ids"].tolist(), row["positions"].tolist()
        ([1, 2, 3, 0], [1, 1, 2, 0], [0, 1, 0, 0])
        """
        names = names_of("pack(column)", column)
        self._check(names)
        if not names or len(set(names)) < len(names):
            raise PlanError(f"pack takes different columns of token sequences, not {names}")
        for name in (SEGMENTS, POSITIONS):
            if name in names:
                raise PlanError(
                    f"pack adds a column {name!r}, so it cannot pack a column of this name: "
                    f"rename({name}=…) before it"
                )
        one_of("pack(overflow=…)", overflow, "split", "truncate", "error")
        natural("pack(length)", length, least=1, most=MOST_POSITIONS)
        natural("pack(window=…)", window, least=1)
        filled = whole("pack(pad=…)", pad)
        return self._add(logical.Pack(self.plan, names, length, window, filled, overflow))

    def bucket(
        self,
        by: str,
        sizes: Mapping[int, int],
        *,
        axis: int | None = None,
        drop_last: bool = False,
        pad: Any = None,
    ) -> Pipeline:
        """Batches rows of similar length: `sizes` maps the longest length of a bucket to its size.

        `by` is a column of lists, or of whole numbers that are the lengths. If it has several
        dimensions, `axis` says which of them is the length: `axis=-1` for a spectrogram (mels,
        frames).

        A bucket fills within a shard, and a batch comes from one shard: with `options(shards=s)`,
        or with s ranks, it has size / s rows, even if one rank reads all shards. s must divide
        every size.

        `pad` is as in `batch`: lengths are a column that you derive before.

        >>> import silva as sv
        >>> rows = sv.from_items([{"t": [1]}, {"t": [1, 2, 3]}, {"t": [2]}])
        >>> [b["t"].tolist() for b in rows.bucket("t", {1: 2, 4: 1}, pad=0).head(2)]
        [[[1, 2, 3]], [[1], [2]]]
        >>> rows = rows.derive(n=sv.list("t").length()).bucket("t", {4: 3}, pad=0)
        >>> rows.head(1)[0]["n"].tolist()
        [1, 3, 1]
        """
        self._check((name_of("bucket(by)", by),))
        if not isinstance(sizes, Mapping) or not sizes:
            raise PlanError(f"bucket(sizes=…) maps lengths to numbers of rows, not {sizes!r}")
        pairs = tuple(
            sorted(
                (natural("bucket(sizes=…)", n), natural("bucket(sizes=…)", rows, least=1))
                for n, rows in sizes.items()
            )
        )
        if axis is not None:
            whole("bucket(axis=…)", axis)
        flag("bucket(drop_last=…)", drop_last)
        if isinstance(pad, dict):
            self._check(tuple(pad))
        return self._add(logical.Bucket(self.plan, by, pairs, drop_last, PadValues.of(pad), axis))

    def cache(
        self,
        folder: str | Path | None = None,
        *,
        shared: bool = False,
        limit: str | int | None = None,
    ) -> Pipeline:
        """Keeps computed rows, so that later epochs and runs do not compute them again.

        Without arguments, rows are kept in memory. A folder, or an address (`s3://`, `gs://`,
        `az://`), also serves later runs and other processes. `shared=True` uses one folder for all
        pipelines of this user: `$SILVA_CACHE`, or `silva/rows` in the system's cache folder. Put it
        after expensive steps and before random ones.

        `limit`, e.g. `"20GiB"`, bounds a folder over all pipelines that use it; when it is full,
        rows that save little computing per byte and have not been used for long are evicted first.
        Without a limit, a twentieth of the disk stays free; an object store is not bounded.

        >>> import silva as sv
        >>> cached = sv.from_columns({"x": range(3)}).derive(y=lambda x: x * x).cache()
        >>> [row["y"] for row in cached]
        [0, 1, 4]
        """
        if flag("cache(shared=…)", shared):
            if folder is not None:
                raise PlanError("cache(…) takes a folder or shared=True, not both")
            from silva.cache.inspect_folder import shared_place

            folder = shared_place()
        if folder is None and limit is not None:
            raise PlanError(
                "cache(limit=…) bounds a folder: pass one, or shared=True; rows in memory stay "
                "within half of loader(memory=…)"
            )
        from silva.cache.open_store import place_of

        if folder is not None:
            path_of("cache(folder)", folder)
        path = None if folder is None else place_of(folder)
        bound = None if limit is None else parse_bytes(limit)
        return self._add(logical.Cache(self.plan, path, bound))

    def options(self, **values: Any) -> Pipeline:
        """Sets options that belong to the pipeline rather than to one loader.

        `optimize=False` runs the plan as written; `disable=["filter_early"]` switches single rules
        and laws off; `fidelity="close"` allows rewrites that change values within a stated bound;
        `shards=12` divides the order into 12 parts, so that global batches are the same for every
        number of ranks that divides 12; `seed=1` is the seed of all randomness.

        >>> import silva as sv
        >>> rows = sv.from_columns({"x": range(4)}).options(shards=2, seed=1).batch(2)
        >>> rows.head(1)[0]["x"].tolist()
        [0, 2]
        """
        unknown = sorted(set(values) - set(_OPTIONS))
        if unknown:
            raise PlanError(f"there is no option {unknown[0]!r}; options are {', '.join(_OPTIONS)}")
        if "optimize" in values:
            flag("options(optimize=…)", values["optimize"])
        if "seed" in values:
            whole("options(seed=…)", values["seed"])
        if "shards" in values:
            natural("options(shards=…)", values["shards"], least=1, most=MOST_SHARDS)
        one_of("options(fidelity=…)", values.get("fidelity", "exact"), "exact", "close")
        if "disable" in values:
            values["disable"] = names_of("options(disable=…)", values["disable"])
        return Pipeline(logical.Options(self.plan, tuple(values.items())))

    # Running.

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yields the rows or batches of epoch 0, the same each time. For several epochs, reuse one
        `loader()`."""
        self._reads += 1
        if self._reads == 2 and any(map(is_random, logical.walk(self.plan))):
            warnings.warn(_SAME_EPOCH, stacklevel=2)
        return iter(self.loader())

    def head(self, count: int = 5) -> list[dict[str, Any]]:
        """Runs the first rows, or batches, on this thread and returns them.

        >>> import silva as sv
        >>> sv.from_columns({"x": range(9)}).head(2)
        [{'x': 0}, {'x': 1}]
        """
        natural("head", count)
        with self._loader_of_all_rows(backend="inline") as loader:
            found: list[dict[str, Any]] = []
            for row in loader:
                if len(found) >= count:
                    break
                found.append(row)
                if len(found) == count:
                    break
            return found

    def count(self) -> int:
        """Returns the number of rows, or batches; runs the pipeline only if it has to.

        >>> import silva as sv
        >>> sv.from_columns({"x": range(9)}).batch(2).count()
        5
        """
        known = plan_rows(self.plan, int(logical.option(self.plan, "shards", 1)))
        if known is not None:
            return known
        return sum(1 for _ in self._loader_of_all_rows()._loop())

    def row(self, key: str, *, epoch: int = 0) -> Any:
        """Runs one row alone, on this thread, by the key that an error message shows.

        Random steps draw as in `epoch`. If a step fails, your own exception is raised, so that a
        debugger stops at the right line.

        >>> import silva as sv
        >>> sv.from_columns({"x": range(9)}).derive(y=lambda x: x * x).row("0:5")
        {'x': 5, 'y': 25}
        """
        from silva.rerun import rerun

        return rerun(self.plan, key, epoch=epoch)

    def __len__(self) -> NoReturn:
        raise TypeError(
            "a pipeline has no len(): count() returns its number of rows or batches, and "
            "len(loader) the number of batches of an epoch"
        )

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, place: Any) -> NoReturn:
        if isinstance(place, str):
            raise TypeError(
                f"a pipeline is not a dict: write select({place!r}) or sv.col({place!r})"
            )
        raise TypeError(
            "a pipeline cannot be indexed: head(n) returns its first rows, take(n) and skip(n) "
            "choose rows, and row('0:5') runs the row with that key"
        )

    if not TYPE_CHECKING:  # a type checker goes on to find names that do not exist

        def __getattr__(self, name):
            raise missing(self, "a pipeline", name, METHODS)

    def _check(self, names: tuple[str, ...]) -> None:
        there = columns(self.plan)
        for name in names:
            if name not in there:
                shown = ", ".join(map(repr, there)) or "(none)"
                raise PlanError(f"there is no column {name!r}; the columns here are {shown}")

    def _check_each(self, verb: str, names: tuple[Any, ...]) -> None:
        for given in names:
            if isinstance(given, list | tuple):
                shown = ", ".join(f'"{name}"' for name in given)
                raise PlanError(f"{verb} takes names one by one: {verb}({shown}), not {given!r}")
            name_of(f"each argument of {verb}", given)
        self._check(names)

    def _add(self, node: logical.Node) -> Pipeline:
        if is_batched(self.plan):
            raise PlanError(f"{node.verb} works on rows and must come before batch")
        return Pipeline(node)


def _names_of_first(pipeline: Pipeline, function: Any) -> tuple[str, ...]:
    """Returns the columns that a whole-row function writes, by running it on the first row."""
    from silva.columns.owned import private

    first = pipeline.head(1)
    if not first:
        return columns(pipeline.plan)
    build = function.build() if isinstance(function, Stateful) else function
    made = build(private(first[0]))  # the function may change its argument
    if not isinstance(made, dict):
        raise PlanError(
            f"map_rows: {describe(function)} ({locate(function)}) must return a dict of columns, "
            f"not {type(made).__name__}"
        )
    return tuple(made)
