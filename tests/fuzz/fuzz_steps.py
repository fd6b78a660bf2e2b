"""Draws steps: verbs that derive columns, of every kind, and steps that fail.

Each gives a piece of source and notes what it does to the columns; None where it cannot be.
"""

from __future__ import annotations

from fuzz_sources import Scope
from fuzz_words import KINDS


def derive(s: Scope) -> str | None:
    chance = s.chance
    step, kind = chance.choice(
        (
            ("lambda x: x if x % 3 else float(x)", "any"),
            ("lambda x: list(range(x % 4))", "ints"),
            ("lambda x: tuple(range(x % 3))", "ints"),
            ("lambda x: np.full((2, 3), x, dtype=np.int16)", "array"),
            ("lambda x: np.arange(x % 4, dtype=np.int32)", "ints"),
            ("lambda x: [list, tuple, np.array][x % 3](range(x % 4))", "list"),
            ("lambda x: None if x % 5 == 0 else x", "any"),
            ("lambda x: None if x % 4 == 0 else [x] * (x % 3)", "list"),
            ("lambda x: None if x % 4 == 0 else np.full(2, x)", "any"),
            ("lambda x: {'k': x, 'v': [x]}", "any"),
            ("lambda x: f't{x % 3}'", "text"),
            ("lambda x: x << 62", "any"),
            ("lambda x: np.float32(x) if x % 2 else np.int8(x % 99)", "any"),
            ("lambda x: (x % 2 == 0, [], 's', None, b'')[x % 5]", "any"),
            ("lambda x: np.float32(x / 3)", "float"),
            ("lambda x: [[x], []][: x % 3]", "list"),
            ("lambda x: np.array(x)", "any"),
            ("lambda x: np.zeros((x % 2 + 1, 2))", "any"),
            ("3", "int"),
            ("lambda x: np.broadcast_to(np.float32(x), (2, 2))", "array"),
            ("lambda x: np.arange(x, x + 6)[::-2]", "ints"),
            ("lambda x: np.arange(x % 5)[::-1]", "ints"),
            ("lambda x: np.ma.array([x, -x], mask=[x % 2, x % 3 == 0])", "any"),
            ("lambda x: np.ma.array([x] * (x % 3), int)", "list"),
            ("lambda x: np.ma.masked if x % 4 == 1 else x", "any"),
            ("lambda x: np.ma.array(x)", "any"),
            ("lambda x: 'ab'[: x % 3] + '\\0' * (x % 2)", "text"),
            ("lambda x: b'ab'[: x % 3] + bytes(x % 2)", "any"),
            ("lambda x: np.str_('a' + '\\0' * (x % 3))", "any"),
            ("lambda x: np.bytes_(b'a' + bytes(x % 3))", "any"),
            ("lambda x: np.array(['a' + '\\0' * (x % 3)] * (x % 2))", "any"),
            ("lambda x: '\\udc80' * (x % 2)", "text"),
        )
    )
    return f".derive({s.new(kind)}={step})"


def derive_of_column(s: Scope) -> str | None:
    name = s.pick("ints", "list", "any", "text", "array", "float")
    if name is None:
        return None
    step, kind = s.chance.choice(
        (
            ("lambda v: v", s.columns[name]),
            ("lambda v: [v, v]", "any"),
            ("lambda v: str(type(v).__name__)", "text"),
            ("lambda v: None if v is None else len(shown(v))", "any"),
        )
    )
    return f".derive({step}, into={s.new(kind)!r}, reads={name!r})"


def derive_random(s: Scope) -> str | None:
    s.traits.add("random")
    step, kind = s.chance.choice(
        (
            ("lambda x, rng: x + rng.integers(1000)", "int"),
            ("lambda x, rng: rng.random(2)", "array"),
            ("lambda x, rng: [int(v) for v in rng.integers(9, size=x % 3)]", "ints"),
            ("sv.batched(lambda x, rng: x + rng.integers(9, size=len(x)))", "int"),
            ("lambda rng: rng.integers(9)", "int"),
        )
    )
    return f".derive({s.new(kind)}={step})"


def derive_global(s: Scope) -> str | None:
    s.traits |= {"random", "global"}
    step = s.chance.choice(
        (
            "global_draw('python')",
            "global_draw('numpy')",
            "global_draw('both')",
            "torch_draw()",
            "Adds(3)",
        )
    )
    return f".derive({s.new('any')}={step})"


def derive_several(s: Scope) -> str | None:
    step = s.chance.choice(
        (
            "lambda x: (x, [x] * (x % 2))",
            "lambda x: {'A': -x, 'B': str(x)}",
            "lambda x, rng: (rng.integers(5), x)",
        )
    )
    a, b = s.pair()
    return f".derive({step.replace('A', a).replace('B', b)}, into=({a!r}, {b!r}))"


def derive_batched(s: Scope) -> str | None:
    step, kind = s.chance.choice(
        (
            ("sv.batched(lambda x: x * 2)", "int"),
            ("sv.batched(lambda x: x.astype(np.float32) / 3)", "float"),
            ("sv.batched(lambda x: [str(v) for v in x])", "text"),
            ("sv.batched(lambda x: [[v] * (v % 3) for v in x.tolist()])", "ints"),
            ("sv.batched(lambda x: np.broadcast_to(np.int16(7), (len(x), 2)))", "array"),
            ("sv.batched(lambda x: np.stack([x, -x], 1)[:, ::-1])", "array"),
            ("sv.batched(lambda x: np.stack([x, x, -x]).T)", "array"),
            ("sv.batched(lambda x: x[::-1].copy()[::-1])", "int"),
            ("sv.batched(lambda x: np.ma.array(x, mask=x % 3 == 0))", "any"),
            ("sv.batched(lambda x: np.ma.array(x))", "any"),
            ("sv.batched(lambda x: np.ma.masked_equal(np.stack([x % 3, x % 2], 1), 1))", "any"),
            ("sv.batched(lambda x: np.array(['a' * (v % 3) + '\\0' for v in x.tolist()]))", "any"),
            ("sv.batched(lambda x: np.array([bytes([v % 3, v % 2]) for v in x.tolist()]))", "any"),
            ("sv.batched(lambda x: ['a' * (v % 3) + '\\0' for v in x.tolist()])", "text"),
            ("counts(3)", "float"),
            ("counts(7)", "float"),
            ("sv.impure(lambda x: x + 1)", "int"),
        )
    )
    if "counts" in step or "impure" in step:
        s.plain = False
    return f".derive({s.new(kind)}={step})"


def derive_expression(s: Scope) -> str | None:
    chance = s.chance
    choices = [
        ("(sv.col('x') * 3 + 1) % 7", "int"),
        ("sv.col('x') / 4", "float"),
        ("sv.col('x').cast('f4')", "float"),
        ("sv.num('x').clip(2, 9)", "int"),
        ("(sv.col('x') > 5) | (sv.col('x') < 2)", "any"),
        ("sv.col('x').is_in([1, 5, 9])", "any"),
    ]
    if (name := s.pick("ints")) is not None:
        choices += [
            (f"sv.list({name!r}).truncate(2)", "ints"),
            (f"sv.list({name!r}).unique()", "ints"),
            (f"sv.list({name!r}).length()", "int"),
            (f"sv.list({name!r}).modulo(3)", "ints"),
        ]
        if chance.random() < 0.3:  # lists beside arrays
            array = s.new("any")
            made = f"sv.col({name!r}) * sv.col({array!r})"
            return f".derive({array}=lambda x: np.array([x])).derive({s.new('any')}={made})"
    if (name := s.pick("text")) is not None:
        choices += [
            (f"sv.text({name!r}).upper()", "text"),
            (f"sv.text({name!r}).length()", "int"),
            (f"sv.text({name!r}).split().hash(20)", "ints"),
            (f"sv.text({name!r}).chunk(3, 1, 'characters').hash(20)", "ints"),
        ]
        if chance.random() < 0.3:
            choices.append((f"sv.text({name!r}).split().to_ids({{'s1': 1, 's2': 2}})", "ints"))
    if (name := s.pick("any")) is not None:
        choices += [(f"sv.col({name!r}).is_null()", "any")]
    step, kind = chance.choice(choices)
    if "to_ids" in step:
        s.traits.add("fails")
    return f".derive({s.new(kind)}={step})"


def fail(s: Scope) -> str | None:
    chance = s.chance
    s.traits.add("fails")
    kind, at = chance.choice(KINDS), s.some_rows()
    match chance.randrange(8):
        case 0 | 1:
            then = chance.choice(("", ", lambda x: [x] * (x % 3)", ", lambda x: float(x)"))
            return f".derive({s.new('any')}=fails({kind!r}, {at}{then}))"
        case 2:
            return f".filter(fails({kind!r}, {at}, lambda x: x % 3 != 1))"
        case 3:
            s.traits.add("random")
            return f".derive({s.new('int')}=fails_rng({kind!r}, {at}))"
        case 4:
            s.plain = False
            names = list(s.columns)
            return f".map_rows(fails_row({kind!r}, {at}), into={names!r})"
        case 5:
            return f".derive({s.new('int')}=batched_fails({kind!r}, {at}))"
        case 6:
            s.plain = False
            return f".derive({s.new('int')}=batched_fails({kind!r}, {at}, 4))"
        case _:
            a, b = s.pair()
            return f".derive(fails({kind!r}, {at}, lambda x: (x, -x)), into=({a!r}, {b!r}))"
