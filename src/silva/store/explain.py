"""`Table.explain`: for each column whether it is stored, what it takes, why, and what it is of."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from silva.insight.words import plural, size, wrapped
from silva.plan.node import Step
from silva.store.audit import observed
from silva.store.choose import Candidate, Decision, choose
from silva.store.costs import measure
from silva.store.definitions import BASE, Definition, current, read_definition, recipes
from silva.store.folder import Folder
from silva.store.manifest import Fragment, Version, Wish
from silva.store.materialize import giving
from silva.store.sizes import column_bytes, dedup_factor
from silva.store.source import TableSource
from silva.store.stored import is_stored, stored_name

_INDENT = "    "
_SMALL = 1.05
"""Factors below this are not worth a word."""


class TableExplanation(str):
    """Text that shows itself as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Advice:
    """What is best done about one derived column."""

    candidate: Candidate
    decision: Decision


def advise(
    folder: Folder, version: Version, steps: Mapping[str, Step], budget: float | None = None
) -> list[Advice]:
    """What to store, from what was said, what was seen, and what some rows cost."""
    seen = observed(folder, time.time())
    candidates = [
        _candidate(folder, version, name, steps, seen)
        for name, fingerprint in dict(version.definitions).items()
        if read_definition(folder, fingerprint).given is None
    ]
    made = choose(candidates, budget)
    return [Advice(c, d) for c, d in zip(candidates, made, strict=True)]


def _candidate(
    folder: Folder,
    version: Version,
    name: str,
    steps: Mapping[str, Step],
    seen: Mapping[str, float],
) -> Candidate:
    found = recipes(folder, version, (name,), steps)
    source = giving(TableSource.of(folder, version), found, (name,))
    own = next(r for r in reversed(found) if r.name == name)
    measured = measure(source, name, own)
    wish = version.wishes.get(name, Wish())
    unstorable = read_definition(folder, own.fingerprint).unstorable or measured.failed
    stored = any(is_stored(f, own.fingerprint) for f in source.fragments)
    reads = wish.reads + seen.get(name, 0.0)
    return Candidate(name, measured.costs, reads, stored, wish.pin, unstorable)


def explain_table(folder: Folder, version: Version, steps: Mapping[str, Step]) -> TableExplanation:
    """All that is known of a version's columns, as text."""
    fragments = list(folder.all_fragments(version))
    advice = {a.candidate.name: a for a in advise(folder, version, steps)}
    schema = folder.schema(version.schema)
    roles = {schema.group: "group", schema.time: "time"} | dict.fromkeys(schema.key, "key")
    lines = [f"table {folder} ({version}): {plural(version.rows, 'row')} in "
             f"{plural(len(fragments), 'fragment')}"]  # fmt: skip
    sizes = _sizes(folder, fragments)
    for name, fingerprint in current(folder, version).items():
        lines.append(f"  {name}" + (f" ({roles[name]})" if name in roles else ""))
        if fingerprint.startswith(BASE):
            told = [_stored_line(folder, fragments, name, sizes)]
        elif name in advice:
            told = _derived_lines(folder, fragments, name, fingerprint, sizes, advice[name])
        else:
            text = read_definition(folder, fingerprint).text
            told = [f"given: {size(sizes.get(fingerprint, 0))}, {text}"]
        lines += [line for text in told for line in wrapped(text, _INDENT, _INDENT + "  ")]
    return TableExplanation("\n".join(lines))


def _sizes(folder: Folder, fragments: Sequence[Fragment]) -> dict[str, int]:
    found: dict[str, int] = {}
    for fragment in fragments:
        for part in fragment.parts:
            for name, count in column_bytes(folder.data, part).items():
                found[name] = found.get(name, 0) + count
    return found


def _stored_line(
    folder: Folder, fragments: Sequence[Fragment], name: str, sizes: Mapping[str, int]
) -> str:
    largest = max(fragments, key=lambda f: f.rows, default=None)
    part = None if largest is None else next((p for p in largest.parts if name in p.columns), None)
    factor = 1.0 if part is None else dedup_factor(folder.data, part, name)
    shared = f", each stored value is shared by {factor:.1f}" if factor >= _SMALL else ""
    return f"stored: {size(sizes.get(name, 0))}{shared}"


def _derived_lines(
    folder: Folder,
    fragments: Sequence[Fragment],
    name: str,
    fingerprint: str,
    sizes: Mapping[str, int],
    advice: Advice,
) -> list[str]:
    definition = read_definition(folder, fingerprint)
    names = {n for f in fragments for p in f.parts if (n := stored_name(p, fingerprint))}
    count = sum(is_stored(f, fingerprint) for f in fragments)
    if names:
        where = "" if count == len(fragments) else f" for {count} of {len(fragments)} fragments"
        stored = _stored_line(folder, fragments, next(iter(names)), sizes).removeprefix("stored")
        state = f"stored{where}{stored}"
    else:
        state = "computed on read: 0 B"
    change = ""
    if advice.decision.store != bool(names):
        change = "; optimize() would " + ("store it" if advice.decision.store else "give it up")
    head, _, rest = definition.text.partition("\n")
    text = head + (" …" if rest else "")
    return [
        state,
        f"because {advice.decision.why}{change}",
        f"of {_lineage(folder, fingerprint)}{_beside(definition)}: {text}",
    ]


def _beside(definition: Definition) -> str:
    """The columns that the same step makes."""
    others = [name for name, _ in definition.parts if name != definition.name]
    return f", together with {', '.join(others)}" if others else ""


def _lineage(folder: Folder, fingerprint: str) -> str:
    """The columns that it is computed of, and what those are computed of."""
    definition = read_definition(folder, fingerprint)
    told = [
        name if below.startswith(BASE) else f"{name} ({_lineage(folder, below)})"
        for name, below in zip(definition.reads, definition.inputs, strict=True)
    ]
    return ", ".join(told) or "nothing"
