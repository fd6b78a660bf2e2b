"""Draws pipelines: a case is a text, made of one seed.

A pipeline is drawn as a `Tree`: a source (or several trees that are mixed, zipped or joined end to
end) and the verbs after it, each a piece of source code. What is drawn is therefore what is shown,
what can be pasted, and what is made smaller when it fails.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from fuzz_case import Case, Tree
from fuzz_sources import SOURCES, Scope, any_of, draw_source
from fuzz_steps import (
    derive,
    derive_batched,
    derive_expression,
    derive_of_column,
    derive_random,
    fail,
)
from fuzz_verbs import (
    ENDS,
    VERBS,
    draw_end,
    explode,
    filter_rows,
    sample,
    select,
    shuffle,
    skip,
    take,
)


@dataclass(frozen=True)
class Taste:
    """What a case has more of than others: faults hide where certain things meet."""

    sources: dict[str, int] = field(default_factory=lambda: SOURCES)
    verbs: dict[Any, int] = field(default_factory=lambda: VERBS)
    ends: dict[str, int] = field(default_factory=lambda: ENDS)
    several: float = 0.35
    operations: dict[str, int] = field(default_factory=lambda: {"concat": 2, "mix": 5, "zip": 2})
    stops: tuple[str, ...] = ("all", "first", "repeat", "repeat")
    lists: float = 0.6
    """How many sources have a column of lists."""
    policies: tuple[str, ...] = ()


def _verbs(s: Scope, count: int, taste: Taste) -> tuple[str, ...]:
    found = [any_of(s.chance, taste.verbs)(s) for _ in range(count)]
    return tuple(verb for verb in found if verb is not None)


def _few(chance: Random, most: int) -> int:
    return min(most, chance.choice((0, 1, 1, 2, 2, 3, 4, 5)))


def _tree(chance: Random, taste: Taste, depth: int = 1) -> tuple[Tree, Scope]:
    if depth and chance.random() < taste.several:
        return _several(chance, taste, depth)
    begin, scope = draw_source(chance, taste.sources, taste.lists)
    return Tree(begin, verbs=_verbs(scope, _few(chance, 5), taste)), scope


def _several(chance: Random, taste: Taste, depth: int) -> tuple[Tree, Scope]:
    parts = [_tree(chance, taste, depth - 1) for _ in range(chance.choice((2, 2, 2, 3)))]
    traits = set().union(*(s.traits for _, s in parts))
    operation = any_of(chance, taste.operations)
    if operation == "zip":
        trees, columns = _side_by_side(parts)
    elif chance.random() < 0.4:
        trees, columns = _alike(parts)
    else:
        trees, columns = _alike([_completed(part, parts) for part in parts])
    match operation:
        case "zip":
            stop = chance.choice(("shortest", "shortest", "shortest", "strict"))
            combine = f"sv.zip({{}}, stop={stop!r})"
        case "concat":
            combine = "sv.concat({})"
        case _:
            stop = chance.choice(taste.stops)
            weights = ""
            if len(parts) == 2:
                weights = chance.choice(
                    (
                        "",
                        ", [1, 1]",
                        ", [3, 1]",
                        ", [0, 1]",
                        ", [1e308, 1e308]",
                        ", {{0: [1, 0], 10: [1, 3]}}",
                    )
                )
            combine = f"sv.mix({{}}{weights}, seed={chance.randrange(3)}, stop={stop!r})"
            if stop == "repeat":
                traits.add("repeat")
    rows = sum(s.rows for _, s in parts) * (2 if "repeat" in traits else 1)
    most = max(s.source_rows for _, s in parts)
    scope = Scope(chance, rows, most, columns, indexed=False, plain=False, traits=traits, named=50)
    return Tree(trees, combine, _verbs(scope, _few(chance, 3), taste)), scope


Parts = list[tuple[Tree, Scope]]


def _then(tree: Tree, *verbs: str) -> Tree:
    return replace(tree, verbs=(*tree.verbs, *verbs))


def _side_by_side(parts: Parts) -> tuple[tuple[Tree, ...], dict[str, str]]:
    """Pipelines without a common name: only the first has `x`."""
    trees, columns = [], {}
    for i, (tree, scope) in enumerate(parts):
        names = {
            n: "x" if n == "x" and i == 0 else f"z{i}{n[:1]}{j}"
            for j, n in enumerate(scope.columns)
        }
        columns |= {names[n]: k for n, k in scope.columns.items()}
        select = f".select({', '.join(map(repr, names.values()))})"
        trees.append(_then(tree, f".rename({names!r})", select))
    return tuple(trees), columns


def _completed(part: tuple[Tree, Scope], parts: Parts) -> tuple[Tree, Scope]:
    """A pipeline with every column that another has."""
    tree, scope = part
    wanted = {n: k for _, s in parts for n, k in s.columns.items()}
    missing = {n: k for n, k in wanted.items() if n not in scope.columns and n.isidentifier()}
    if missing:
        tree = _then(tree, f".derive({', '.join(f'{n}=-1' for n in missing)})")
    columns = {**scope.columns, **dict.fromkeys(missing, "any")}
    return tree, replace(scope, columns=columns)


def _alike(parts: Parts) -> tuple[tuple[Tree, ...], dict[str, str]]:
    """Pipelines with the columns that all of them have; their types may differ."""
    first = parts[0][1].columns
    common = [n for n in first if all(n in s.columns for _, s in parts)]
    columns = {
        n: first[n] if len({s.columns[n] for _, s in parts}) == 1 else "list" if n == "l" else "any"
        for n in common
    }
    select = f".select({', '.join(map(repr, common))})"
    return tuple(_then(tree, select) for tree, _ in parts), columns


def _anything() -> Taste:
    return Taste()


def _list_kinds() -> Taste:
    """Lists of every kind side by side in one batch."""
    sources = {"memory": 3, "items": 1, "arrow": 2, "parquet": 2, "jsonl": 1, "table": 1}
    verbs = {derive: 4, derive_of_column: 4, filter_rows: 2, shuffle: 3, take: 1, explode: 1}
    ends = {"batch": 6, "tokens": 1, "bucket": 1, "grouped": 2, "pad": 1, "rows": 1}
    operations = {"concat": 3, "mix": 3}
    return Taste(sources, verbs, ends, 0.7, operations, lists=1.0)


def _waiting() -> Taste:
    """Rows that wait while others are handed out, of pipelines that begin anew."""
    verbs = {
        derive_random: 5,
        derive: 2,
        filter_rows: 2,
        shuffle: 3,
        explode: 2,
        derive_batched: 2,
    }
    ends = {"bucket": 5, "pack": 2, "tokens": 2, "batch": 1}
    operations = {"mix": 5, "concat": 1, "zip": 1}
    return Taste(SOURCES, verbs, ends, 0.7, operations, ("repeat", "repeat", "all"))


def _failing() -> Taste:
    """Steps that fail before and after filters, within budgets."""
    verbs = {fail: 6, filter_rows: 5, derive: 2, derive_expression: 1, shuffle: 1, select: 1}
    return Taste(verbs=verbs, several=0.15)


def _sampled() -> Taste:
    """Rows that are drawn by weight, from orders of every kind."""
    sources = {"memory": 3, "items": 1, "arrow": 2, "table": 1, "own_rows": 1}
    verbs = {sample: 4, shuffle: 2, take: 1, skip: 1, derive: 2, derive_random: 1}
    return Taste(sources, verbs, several=0.2)


def _counted() -> Taste:
    """Parts of rows above pipelines that drop rows, and policies that count them."""
    verbs = {explode: 5, fail: 4, filter_rows: 3, derive: 2, take: 1, skip: 1, shuffle: 1}
    ends = {"rows": 2, "batch": 3, "bucket": 1, "tokens": 1}
    policies = ("sv.Skip()", "sv.Skip(rate=0.1)", "sv.Skip(rate=0.3)", "sv.Substitute(0)")
    return Taste(verbs=verbs, ends=ends, several=0.7, policies=policies)


TASTES = {_anything: 4, _list_kinds: 2, _waiting: 2, _failing: 3, _sampled: 1, _counted: 1}

POLICIES = (
    "sv.Skip()", "sv.Skip()", "sv.Skip(at_most=0)", "sv.Skip(at_most=1)", "sv.Skip(at_most=2)",
    "sv.Skip(rate=0.1)", "sv.Skip(rate=0.0)", "sv.Substitute(0)", "sv.Substitute(None)",
    "sv.Substitute([1, 2])", "sv.Substitute(np.zeros(2))", "sv.Substitute({'k': [1]})",
    "sv.Substitute(np.ma.array([1, 2], mask=[0, 1]))", "sv.Substitute(np.float32(0.5))",
    "sv.Substitute('x')", "'raise'", "'raise'", "'raise'",
)  # fmt: skip


def draw(seed: int) -> Case:
    """The case that a seed means."""
    chance = Random(seed)
    if chance.random() < 0.03:
        return _refused(seed, chance)
    taste = any_of(chance, TASTES)()
    tree, scope = _tree(chance, taste)
    end = tuple(verb for verb in draw_end(scope, taste.ends) if verb)
    case = Case(seed, _then(tree, *end))
    if "fails" in scope.traits or chance.random() < 0.2:
        case.policy = chance.choice(taste.policies or POLICIES)
    case.loader_seed = chance.choice((0, 0, 5))
    case.traits = frozenset(scope.traits)
    if "batch" in scope.traits and chance.random() < 0.4:
        case.shards = {2: 2, 4: 4, 8: 4}.get(case.batch_size)
    return case


def _refused(seed: int, chance: Random) -> Case:
    """A pipeline of which silva must refuse a function."""
    n, kind = chance.choice((8, 20, 40)), chance.choice(("memory", "arrow", "torch_map"))
    before = chance.choice(((), (".shuffle(1)",), (".derive(y=lambda x: -x)",)))
    tree = Tree(
        f"{kind}({n}, x='int64')", verbs=(*before, ".derive(z=looks_around())", ".batch(4)")
    )
    return Case(seed, tree, policy=chance.choice(("'raise'", "sv.Skip()")), refused=True)
