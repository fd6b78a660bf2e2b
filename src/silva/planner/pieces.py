"""An expression in pieces: the operators of its chain, each of which might be followed by a cache.

    image = bytes.decode().resize(256, 256).random_crop(224).normalize()

is the same in every epoch up to `resize`, and smallest there. A piece ends where two operators were
measured separately: neighbours with a fused kernel stay together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from silva.plan import expr
from silva.plan.node import Derive
from silva.plan.operator import operator


@dataclass(frozen=True)
class Piece:
    """The part of a derivation that ends with some operator."""

    term: expr.Call
    """The expression up to here."""
    share: float
    """The share of the derivation's time."""
    nbytes: float
    """Bytes per row after it."""
    random: bool


def pieces(step: Derive, metered: Mapping[str, tuple[float, int, int]]) -> list[Piece]:
    """The pieces of an expression, first to last; empty if it cannot be split."""
    if not isinstance(step.step, expr.Call) or len(step.into) > 1:
        return []
    chain = _chain(step.step)
    names = [call.op for call in chain]
    if len(set(names)) < len(names):  # two operators of one name: their times were added up
        return []
    cuts, at = [], 0
    while at < len(chain):
        pair = f"{names[at]} + {names[at + 1].rpartition('.')[2]}" if at + 1 < len(chain) else ""
        name = pair if pair in metered else names[at]
        if name not in metered or not metered[name][1]:
            return []
        at += 2 if name == pair else 1
        cuts.append((at, metered[name]))
    spent = [seconds / rows for _, (seconds, rows, _) in cuts]
    total = sum(spent) or 1.0
    found, done = [], 0
    for (end, (_, rows, nbytes)), seconds in zip(cuts, spent, strict=True):
        random = any(operator(call.op).random for call in chain[done:end])
        found.append(Piece(chain[end - 1], seconds / total, nbytes / rows, random))
        done = end
    return found


def _chain(term: expr.Term) -> list[expr.Call]:
    """The calls from the column that a chain begins with up to `term`."""
    found: list[expr.Call] = []
    while isinstance(term, expr.Call):
        found.append(term)
        if not term.args:
            break
        term = term.args[0]
    return found[::-1]


def split(step: Derive, term: expr.Call, name: str) -> tuple[Derive, Derive]:
    """A derivation split in two: `term`, a part of it, into the column `name`, and the rest."""
    first = Derive(step.input, term, (name,), f"{step.id}, up to {term.op.rpartition('.')[2]}")
    assert isinstance(step.step, expr.Call)
    rest = expr.rebuild(step.step, lambda part: expr.Col(name) if part is term else part)
    return first, replace(step, step=rest)
