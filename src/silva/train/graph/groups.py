"""Finds the weights of a module that can be sharded over several devices, and proves each group.

A group has *producers*, matrix products whose outputs are divided, and *frontiers*, matrix products
that take the divided values and whose partial sums are added up. Between them every device works on
its part. Producers are found by walking from each product of a weight to the next ones; those that
share a frontier are one group. A group is proven on random numbers: the partial results of all
parts, added up, are those of the whole. What is not is left whole, with the reason.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from silva.train.graph.shards import CannotShard, Quotient, Shard, Step, name_of, step
from silva.train.graph.trace import Traced
from silva.train.graph.values import concrete, dtype_of, shape_of

_TOLERANCE = 1e-3
"""How far the sum of the parts may be from the whole, of its largest number: operators in between
may round to 32 bits, or to less where the module says so."""
_MOST_STACKED = 8
"""Projections that a weight may stack."""
_MOST_WAYS = 64
"""Combinations of ways to divide the outputs of a group's producers that are tried."""


@dataclass(frozen=True)
class Product:
    """A matrix product of a value and a weight."""

    node: fx.Node
    value: fx.Node
    weight: fx.Node
    """The placeholder of the weight."""
    out_dim: int
    """The dimension of the weight that becomes one of the output."""
    in_dim: int
    """The dimension of the weight that is summed over."""
    bias: fx.Node | None
    turned: tuple[fx.Node, ...] = ()
    """Operators that transpose the weight before."""
    scaled: bool = False
    """Whether a factor scales the bias or the product."""


@dataclass(frozen=True, eq=False)
class Group:
    """Weights that are sharded together, and the operators between them."""

    producers: tuple[Product, ...]
    frontiers: tuple[Product, ...]
    steps: Mapping[fx.Node, Step]
    """How a device runs each operator between them, and the producers and frontiers."""
    weights: Mapping[str, Shard]
    """How each weight or bias is divided, by placeholder."""
    entries: frozenset[fx.Node] = frozenset()
    """Values from outside that every device has whole."""

    @property
    def names(self) -> list[str]:
        return [product.weight.name for product in (*self.producers, *self.frontiers)]


@dataclass(frozen=True)
class Found:
    """The groups of a module for a number of parts."""

    parts: int
    groups: tuple[Group, ...]
    why_not: Mapping[str, str] = field(default_factory=dict)
    """Why a weight is left whole, by its name."""


def products(traced: Traced) -> dict[fx.Node, Product]:
    """The matrix products with a weight in a graph."""
    found: dict[fx.Node, Product] = {}
    for node in traced.graph.nodes:
        one = _product(node, traced) if node.op == "call_function" else None
        if one is not None:
            found[node] = one
    return found


def _product(node: fx.Node, traced: Traced) -> Product | None:
    name, args = name_of(node), [a for a in node.args if isinstance(a, fx.Node)]
    if name in ("mm", "matmul") and len(args) == 2:
        value, weight, bias, out_dim, in_dim = args[0], args[1], None, 1, 0
    elif name == "addmm" and len(args) == 3:
        (bias, value, weight), out_dim, in_dim = args, 1, 0
    elif name == "linear" or (name in ("conv1d", "conv2d", "conv3d") and _groups_of(node) == 1):
        value, weight = args[0], args[1]
        given = node.args[2] if len(node.args) > 2 else node.kwargs.get("bias")
        bias = given if isinstance(given, fx.Node) else None
        out_dim, in_dim = 0, 1
    else:
        return None
    turned: list[fx.Node] = []
    while (
        name_of(weight) in ("t", "numpy_T", "transpose", "permute") and weight.op != "placeholder"
    ):
        turned.insert(0, weight)
        weight = weight.all_input_nodes[0]
        out_dim, in_dim = in_dim, out_dim
    if traced.states.get(weight.name) is None or len(shape_of(weight) or ()) < 2:
        return None
    scaled = name == "addmm" and bool(node.kwargs)
    return Product(node, value, weight, out_dim, in_dim, bias, tuple(turned), scaled)


def _groups_of(node: fx.Node) -> int:
    names = [a.name for a in node.target._schema.arguments]
    at = names.index("groups")
    return int(node.args[at] if len(node.args) > at else node.kwargs.get("groups", 1))


def find_groups(traced: Traced, parts: int) -> Found:
    """The groups that can be divided into so many parts, each proven."""
    every = products(traced)
    uses: dict[str, int] = {}
    for one in every.values():
        uses[one.weight.name] = uses.get(one.weight.name, 0) + len(one.weight.users)
    why: dict[str, str] = {}
    reach: dict[fx.Node, frozenset[fx.Node]] = {}
    for node, one in every.items():
        if uses[one.weight.name] > 1:
            why[traced.states[one.weight.name]] = "its weight is used in several places"
        elif not _sections(one, parts):
            why[traced.states[one.weight.name]] = f"its output does not divide by {parts}"
        else:
            reach[node] = _reach(every, node)
    groups: list[Group] = []
    proven: dict[str, str | None] = {}
    taken: set[fx.Node] = set()
    for members in _together(reach):
        producers = [every[node] for node in members]
        names = [traced.states[p.weight.name] for p in producers]
        try:
            group = _group(every, producers, parts, uses)
            overlap = {p.node for p in (*group.producers, *group.frontiers)} & taken
            if overlap:
                raise CannotShard("it is part of another group already")
            key = _signature(group)
            if key not in proven:
                proven[key] = prove(group, parts)
            if proven[key] is not None:
                raise CannotShard(str(proven[key]))
        except CannotShard as error:
            why.update(dict.fromkeys(names, str(error)))
            continue
        taken |= {p.node for p in (*group.producers, *group.frontiers)}
        groups.append(group)
    sharded = {traced.states[name] for group in groups for name in group.weights}
    left = {name: reason for name, reason in why.items() if name not in sharded}
    return Found(parts, tuple(groups), left)


def _together(reach: Mapping[fx.Node, frozenset[fx.Node]]) -> list[list[fx.Node]]:
    """Producers that share a frontier, in the order of the graph."""
    found: list[tuple[set[fx.Node], list[fx.Node]]] = []
    for node, frontiers in reach.items():
        same = [one for one in found if one[0] & frontiers]
        merged = (
            set(frontiers).union(*(one[0] for one in same)),
            [n for one in same for n in one[1]],
        )
        found = [one for one in found if one not in same]
        found.append((merged[0], [*merged[1], node]))
    return [members for _, members in found]


def _sections(one: Product, parts: int) -> list[tuple[int, ...]]:
    """The ways to divide the output of a producer: whole, or as stacked projections that the next
    split or view takes apart."""
    length = (shape_of(one.weight) or ())[one.out_dim]
    found: list[tuple[int, ...]] = [(length,)]
    seen: set[fx.Node] = set()
    todo = [one.node]
    while todo:
        node = todo.pop()
        for user in node.users:
            if user in seen or len(seen) > 64:
                continue
            seen.add(user)
            name, shape = name_of(user), shape_of(user)
            if name in ("split", "split_with_sizes", "chunk"):
                value = user.meta["val"]
                before = shape_of(node) or ()
                for dim in range(len(before)):
                    sizes = tuple(concrete(part.shape[dim]) for part in value)
                    if sum(sizes) == length and len(sizes) > 1:
                        found.append(sizes)
            elif name in ("view", "reshape", "_unsafe_view", "unflatten") and shape:
                stacked = [n for n in shape if 1 < n <= _MOST_STACKED and length % n == 0]
                found += [(length // n,) * n for n in stacked if n != length]
            elif name == "slice" and length in (before := shape_of(node) or ()):
                found.append(_sliced(node, before.index(length), length))
            if shape is None or length in shape:
                todo.append(user)
    return [one for one in dict.fromkeys(found) if all(size % parts == 0 for size in one)]


def _sliced(node: fx.Node, dim: int, length: int) -> tuple[int, ...]:
    """The sections between the slices that are taken of a value."""
    edges = {0, length}
    for user in node.users:
        if name_of(user) == "slice" and len(user.args) > 3:
            at, start, end = user.args[1:4]
            rank = len(shape_of(node) or ())
            if isinstance(at, int) and at % rank == dim:
                edges |= {
                    min(x % length if x < 0 else x, length)
                    for x in (start, end)
                    if isinstance(x, int)
                }
    inside = sorted(edges)
    return tuple(b - a for a, b in itertools.pairwise(inside))


def _reach(every: Mapping[fx.Node, Product], start: fx.Node) -> frozenset[fx.Node]:
    """The next products after one."""
    found, seen, todo = set(), {start}, [start]
    while todo:
        for user in todo.pop().users:
            if user in seen:
                continue
            seen.add(user)
            if user in every:
                found.add(user)
            else:
                todo.append(user)
    return frozenset(found)


@dataclass(frozen=True)
class _Walk:
    frontiers: list[Product]
    steps: dict[fx.Node, Step]
    """The operators on the way."""
    arriving: dict[fx.Node, Shard]
    """How the values that reach the frontiers are divided."""
    chosen: Mapping[fx.Node, tuple[int, ...]]
    """The sections of each producer's output."""


def _walk(
    every: Mapping[fx.Node, Product], chosen: Mapping[fx.Node, tuple[int, ...]], parts: int
) -> _Walk:
    """Follows the divided outputs of producers to the next products."""
    divided: dict[fx.Node, Shard | list[Shard | None]] = {}
    found = _Walk([], {}, {}, chosen)
    for node in next(iter(chosen)).graph.nodes:
        if node in chosen:
            if any(arg in divided for arg in node.all_input_nodes):
                raise CannotShard(f"{node.name} takes what is divided, and is to be divided")
            divided[node] = Shard(_output_dim(every[node]), chosen[node])
            continue
        if not any(arg in divided for arg in node.all_input_nodes):
            continue
        if node.op == "output":
            raise CannotShard("its output leaves the module before a product takes it")
        one = every.get(node)
        if one is None and node.meta.get("val") is None:
            continue  # an assertion about its argument
        if one is None:
            found.steps[node] = step(node, divided, parts)
            divided[node] = found.steps[node].shard
            continue
        shard = divided.get(one.value)
        rank = len(shape_of(one.value) or ())
        last = 1 if name_of(node).startswith("conv") else rank - 1
        if not isinstance(shard, Shard) or shard.dim != last:
            raise CannotShard(f"it reaches {node.name} in another dimension")
        found.frontiers.append(one)
        found.arriving[node] = shard
    if not found.frontiers:
        raise CannotShard("no product takes its output")
    return found


def _output_dim(one: Product) -> int:
    rank = len(shape_of(one.node) or ())
    return 1 if name_of(one.node).startswith("conv") else rank - 1


def _group(
    every: Mapping[fx.Node, Product], producers: list[Product], parts: int, uses: Mapping[str, int]
) -> Group:
    error: CannotShard | None = None
    ways = itertools.product(*(_sections(one, parts) for one in producers))
    for way in itertools.islice(ways, _MOST_WAYS):
        try:
            walk = _walk(every, {p.node: w for p, w in zip(producers, way, strict=True)}, parts)
            break
        except CannotShard as found:
            error = error or found
    else:
        raise error or CannotShard(f"its output does not divide by {parts}")
    chosen, frontiers, steps, arriving = walk.chosen, walk.frontiers, walk.steps, walk.arriving
    weights: dict[str, Shard] = {}
    for one in producers:
        weights[one.weight.name] = Shard(one.out_dim, chosen[one.node])
        if one.bias is not None:
            weights[one.bias.name] = Shard(0, chosen[one.node])
    for one in frontiers:
        if uses[one.weight.name] > 1 or one.weight.name in weights:
            raise CannotShard("the weight of the product that it reaches is used elsewhere")
        if one.scaled:
            raise CannotShard("the product that it reaches scales its bias")
        weights[one.weight.name] = Shard(one.in_dim, arriving[one.node].sections)
    ends = (*producers, *frontiers)
    between = {*steps, *(p.node for p in ends)}
    inside = {*weights, *(node.name for p in ends for node in p.turned)}
    entries = {
        arg
        for node in between
        for arg in node.all_input_nodes
        if arg not in between and arg.name not in inside and shape_of(arg) is not None
    }
    biases = {p.bias for p in frontiers if p.bias is not None}
    return Group(tuple(producers), tuple(frontiers), steps, weights, frozenset(entries - biases))


def _signature(group: Group) -> str:
    """What two groups have in common that have the same operators on the same shapes."""
    numbers: dict[fx.Node, int] = {}

    def numbered(node: fx.Node) -> str:
        return f"%{numbers.setdefault(node, len(numbers))}:{shape_of(node)}"

    lines = []
    for node in group.producers[0].node.graph.nodes:
        if node in group.steps or any(node is p.node for p in (*group.producers, *group.frontiers)):
            args = fx.node.map_arg((node.args, dict(node.kwargs)), lambda n: numbered(n))
            lines.append(f"{numbered(node)} = {node.target}{args}")
    return "\n".join(lines)


def prove(group: Group, parts: int) -> str | None:
    """Runs a group whole and in parts on random numbers; None if they agree, else the reason."""
    generator = torch.Generator().manual_seed(0)
    given: dict[fx.Node, Any] = {}

    def draw(node: fx.Node) -> Any:
        """A value for what comes from outside the group."""
        if node not in given:
            value, shape = node.meta.get("val"), shape_of(node)
            if shape is None:
                given[node] = concrete(value) if isinstance(value, torch.SymInt) else value
            elif (dtype_of(node) or torch.float32).is_floating_point:
                given[node] = torch.randn(shape, generator=generator)
            else:
                drawn = torch.randint(0, 2, shape, generator=generator)
                drawn[..., :1] = 1
                given[node] = drawn.to(dtype_of(node))
        return given[node]

    try:
        with torch.no_grad():
            whole = evaluate(group, draw, None, parts)
            each = [evaluate(group, draw, part, parts) for part in range(parts)]
    except Exception as error:  # noqa: BLE001 - what does not run in parts is left whole
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        return f"its operators do not run on parts: {said}"
    for number, value in enumerate(whole):
        together = torch.stack([one[number] for one in each]).sum(0)
        off = (together - value).abs().max() / value.abs().max().clamp(min=1e-12)
        if not bool(off <= _TOLERANCE):
            return f"its parts do not add up to the whole (off by {float(off):.2g})"
    return None


def evaluate(
    group: Group, draw: Callable[[fx.Node], Any], part: int | None, parts: int
) -> list[Tensor]:
    """What the frontiers of a group give: the whole, or one part, without their biases."""
    values: dict[fx.Node, Any] = {}
    frontiers = {p.node: p for p in group.frontiers}
    producers = {p.node for p in group.producers}
    turned = {node for p in (*group.producers, *group.frontiers) for node in p.turned}

    def value_of(node: fx.Node) -> Any:
        if node in values:
            return values[node]
        if node in turned:
            return _call(node, node.args, node.kwargs, value_of)
        found = draw(node)
        shard = group.weights.get(node.name)
        return found if shard is None or part is None else shard.take(found, part, parts)

    results = []
    for node in group.producers[0].node.graph.nodes:
        if node in frontiers:
            results.append(multiply(frontiers[node], value_of))
        elif node in producers:
            values[node] = _call(node, node.args, node.kwargs, value_of)
        elif node in group.steps:
            how = group.steps[node]
            if part is None:
                values[node] = _call(node, node.args, node.kwargs, value_of)
                continue

            def taken(arg: fx.Node, how: Step = how) -> Any:
                shard = how.narrowed.get(arg)
                found = value_of(arg)
                return found if shard is None else shard.take(found, part, parts)

            args = _sizes(how.args, value_of)
            values[node] = _call(node, args, how.kwargs, taken)
    return results


def multiply(one: Product, value_of: Callable[[fx.Node], Any]) -> Tensor:
    """The product of a frontier without its bias."""
    args = list(one.node.args)
    if name_of(one.node) == "addmm":
        return torch.mm(*(fx.node.map_arg(args[1:3], value_of)))
    if one.bias is not None and len(args) > 2:
        args[2] = None
    kwargs = {name: v for name, v in one.node.kwargs.items() if name != "bias"}
    made: Tensor = _call(one.node, tuple(args), kwargs, value_of)
    return made


def _call(node: fx.Node, args: Any, kwargs: Any, value_of: Callable[[fx.Node], Any]) -> Any:
    if name_of(node) in ("dropout", "native_dropout", "feature_dropout"):
        args = (args[0], 0.0, False)
    if name_of(node) == "scaled_dot_product_attention" and len(args) > 4:
        args = (*args[:4], 0.0, *args[5:])
    if "dropout_p" in kwargs:
        kwargs = {**kwargs, "dropout_p": 0.0}
    return node.target(*fx.node.map_arg(args, value_of), **fx.node.map_arg(dict(kwargs), value_of))


def _sizes(args: Any, value_of: Callable[[fx.Node], Any]) -> Any:
    """Arguments in which sizes of the batch are divided."""
    if isinstance(args, Quotient):
        return value_of(args.size) // args.parts
    if isinstance(args, list | tuple):
        return type(args)(_sizes(one, value_of) for one in args)
    return args
