"""Draws the other verbs, and those that a pipeline ends with."""

from __future__ import annotations

from collections.abc import Mapping

from fuzz_sources import Scope, any_of
from fuzz_steps import (
    derive,
    derive_batched,
    derive_expression,
    derive_global,
    derive_of_column,
    derive_random,
    derive_several,
    fail,
)
from fuzz_words import KINDS


def filter_rows(s: Scope) -> str | None:
    step = s.chance.choice(
        (
            "lambda x: x % 4 != 1",
            "lambda x: x % 7 != 2",
            "(sv.col('x') % 5 != 2) & (sv.col('x') >= 1)",
            "sv.col('x') % 3 != 0",
            "lambda x, rng: rng.random() < 0.7",
            "sv.batched(lambda x: x % 6 != 0)",
            "lambda x: x",
            "lambda x: np.bool_(x % 5 != 3)",
        )
    )
    if "rng" in step:
        s.traits.add("random")
    s.traits.add("filter")
    return f".filter({step})"


def select(s: Scope) -> str | None:
    kept = [n for n in s.columns if n == "x" or s.chance.random() < 0.6]
    s.chance.shuffle(kept)
    s.columns = {n: s.columns[n] for n in kept}
    return f".select({', '.join(map(repr, kept))})"


def drop(s: Scope) -> str | None:
    gone = [n for n in s.columns if n != "x" and s.chance.random() < 0.3]
    if not gone:
        return None
    s.columns = {n: k for n, k in s.columns.items() if n not in gone}
    return f".drop({', '.join(map(repr, gone))})"


def rename(s: Scope) -> str | None:
    others = [n for n in s.columns if n != "x" and n not in ("w", "s")]
    if not others:
        return None
    old = s.chance.choice(others)
    new = f"r{s.named}"
    s.named += 1
    s.columns = {new if n == old else n: k for n, k in s.columns.items()}
    return f".rename({{{old!r}: {new!r}}})"


def explode(s: Scope) -> str | None:
    if s.rows > 120 or ("exploded" in s.traits and s.chance.random() < 0.7):
        return None
    name = s.pick("ints", "list")
    if name is None:
        name = s.new("ints")
        begin = f".derive({name}=lambda x: list(range(x % 4)))"
    else:
        begin = ""
    s.columns[name] = "int" if s.columns[name] == "ints" else "any"
    s.traits.add("exploded")
    s.plain, s.rows = False, s.rows * 4
    return f"{begin}.explode({name!r})"


def map_rows(s: Scope) -> str | None:
    s.plain = False
    if "fails" not in s.traits and s.chance.random() < 0.5:  # it runs the first row
        return ".map_rows(lambda row: {**row, 'x': row['x'] + 1})"
    new = s.new("any")
    return f".map_rows(lambda row: {{**row, {new!r}: [row['x']]}}, into={list(s.columns)!r})"


def shuffle(s: Scope) -> str | None:
    seed = s.chance.randrange(4)
    if s.chance.random() < 0.4:
        return f".shuffle({seed}, kind='window', window={s.chance.choice((3, 6, 100))})"
    return f".shuffle({seed})"


def sample(s: Scope) -> str | None:
    if not s.indexed or not s.plain or not s.source_rows or "weight" in s.columns:
        return None
    size = s.chance.choice((5, 20))
    s.rows = size
    before = s.chance.choice(("", "", "", ".shuffle(1)", ".shuffle(2)", ".shuffle(3).take(9)"))
    by = s.pick("text")
    if by is not None and s.chance.random() < 0.4:
        return f"{before}.sample(balance={by!r}, size={size}, seed=1)"
    s.columns["weight"] = "int"
    weight = f"{before}.derive(weight=lambda x: (x + 1) % 5)"
    return f"{weight}.sample('weight', size={size}, seed=1)"


def take(s: Scope) -> str | None:
    return f".take({s.chance.choice((0, 1, 5, 11, 23))})"


def skip(s: Scope) -> str | None:
    return f".skip({s.chance.choice((1, 3, 8))})"


def cache(s: Scope) -> str | None:
    if "random" in s.traits and s.chance.random() < 0.9:  # is refused
        return None
    s.traits.add("cache")
    if s.chance.random() < 0.5:
        return ".cache()"
    s.named += 1
    return f".cache(folder('c{s.named}'))"


def join(s: Scope) -> str | None:
    if "price" in s.columns:
        return None
    how = s.chance.choice(("left", "inner"))
    if s.chance.random() < 0.5 and s.columns.get("s") == "text" and s.columns.get("w") == "float":
        if "score" in s.columns:
            return None
        s.columns["score"] = "any"
        return ".asof_join(HISTORY, by='s', on={'w': 'at'}, ttl=0.6, lag=0.01, available='seen')"
    s.columns |= {"price": "float", "tags": "ints" if how == "inner" else "list", "name": "text"}
    other = s.chance.choice(
        ("PRICES", "sv.from_columns(PRICES).filter(sv.col('k') != 9).derive(name=lambda k: [k])")
    )
    if other != "PRICES":
        s.columns["name"] = s.columns["tags"]
    return f".join({other}, on={{'x': 'k'}}, how={how!r})"


def split(s: Scope) -> str | None:
    return ".split(a=0.8, by='x')[0]"


def owns(s: Scope) -> str | None:
    if s.columns.get("a") != "array":
        return None
    return ".derive(a=owned('a'))"


VERBS = {
    derive: 14, derive_of_column: 6, derive_random: 7, derive_global: 2, derive_several: 3,
    derive_batched: 7, derive_expression: 7, fail: 9, filter_rows: 9, select: 4, drop: 2, rename: 2,
    explode: 4, map_rows: 3, shuffle: 6, sample: 2, take: 3, skip: 2, cache: 3, join: 4,
    split: 1, owns: 1,
}  # fmt: skip


def _ints(s: Scope) -> tuple[str, str]:
    """A column of lists of numbers, made if there is none; rarely one that may hold anything."""
    name = s.pick("ints")
    if s.chance.random() < 0.05 and (odd := s.pick("list", "any")) is not None:
        s.traits.add("errors")
        name = odd
    if name is not None:
        return "", name
    s.columns["q"] = "ints"
    return ".derive(q=lambda x: list(range(x % 5)))", "q"


ENDS = {
    "batch": 8, "pad": 2, "tokens": 3, "bucket": 6, "pack": 3, "rows": 3, "after": 3, "grouped": 2,
    "collate": 1,
}  # fmt: skip


def draw_end(s: Scope, ends: Mapping[str, int]) -> tuple[str, ...]:
    chance = s.chance
    drop = chance.choice(("", "", ", drop_last=True"))
    match any_of(chance, ends):
        case "batch":
            s.traits.add("batch")
            return (f".batch({chance.choice((1, 2, 3, 4, 5, 8))}{drop})",)
        case "pad":
            made, name = _ints(s)
            pad = chance.choice(("0", f"{{{name!r}: -1}}"))
            return (made, f".batch({chance.choice((3, 4))}, pad={pad}{drop})")
        case "tokens":
            made, name = _ints(s)
            s.traits.add("tokens")
            return (made, f".batch(tokens={chance.choice((4, 9))}, by={name!r}{drop})")
        case "bucket":
            made, name = _ints(s)
            s.traits.add("bucket")
            return (made, f".bucket({name!r}, {{0: 2, 2: 3, 9: 2}}{drop})")
        case "pack":
            made, name = _ints(s)
            s.traits.add("pack")
            overflow = chance.choice(("split", "truncate", "error"))
            length = 9 if overflow == "error" else chance.choice((3, 5))
            pack = (
                f".pack({name!r}, {length}, window={chance.choice((3, 8))}, overflow={overflow!r})"
            )
            size = chance.choice((2, 3, 4))
            if size != 3:  # lines of ranks are compared too
                s.traits.add("batch")
            return (made, pack, f".batch({size}{drop})")
        case "rows":
            return ()
        case "after":
            after = [".derive(total=lambda x, rng: x.sum() + rng.integers(9))"]
            s.traits.add("random")
            if chance.random() < 0.5:
                after.append(".filter(lambda total: total % 2 == 0)")
            if chance.random() < 0.3:
                after.append(".take(3)")
            if chance.random() < 0.3:
                s.traits.add("fails")
                at = s.some_rows()
                after.append(
                    f".derive(e=lambda x: fails({chance.choice(KINDS)!r}, {at})(int(x[0])))"
                )
            s.traits.add("after")
            return (f".batch({chance.choice((2, 6))})", *after)
        case "grouped":
            name = s.pick("ints", "text", "int", "array") or "x"
            return (f".batch({chance.choice((3, 6))}, grouped={name!r})",)
        case _:
            made = "{'n': len(rows), 'x': [r['x'] for r in rows]}"
            return (f".batch(4, collate=lambda rows: {made})",)
