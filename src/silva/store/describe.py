"""Text about a table: its columns (`Table.explain`), and what differs between two versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from silva.facts.formatting import plural, size, wrapped
from silva.plan.function import Step
from silva.store.derived.advice import Advice, advise
from silva.store.derived.definitions import BASE, current, read_definition
from silva.store.derived.stored import is_stored, stored_name
from silva.store.files.part_files import column_bytes, dedup_factor
from silva.store.versions.manifest import Fragment, Version
from silva.store.versions.table_folder import Folder

_INDENT = "    "
_SMALL = 1.05
"""Smaller factors are not mentioned."""


class TableExplanation(str):
    """Text whose `repr` is the text itself."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def explain_table(folder: Folder, version: Version, steps: Mapping[str, Step]) -> TableExplanation:
    """For each column of a version: whether it is stored, its bytes, why, and its inputs."""
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
            texts = [_stored_line(folder, fragments, name, sizes)]
        elif name in advice:
            texts = _derived_lines(folder, fragments, name, fingerprint, sizes, advice[name])
            texts += _outdated_line(folder, current(folder, version), fingerprint)
        else:
            text = read_definition(folder, fingerprint).text
            texts = [f"given: {size(sizes.get(fingerprint, 0))}, {text}"]
        lines += [line for text in texts for line in wrapped(text, _INDENT, _INDENT + "  ")]
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
    others = [name for name, _ in definition.parts if name != definition.name]
    beside = f", together with {', '.join(others)}" if others else ""
    text = _definition_text(folder, fingerprint)
    return [
        state,
        f"because {advice.decision.why}{change}",
        f"of {_lineage(folder, fingerprint)}{beside}: {text}",
    ]


def _lineage(folder: Folder, fingerprint: str) -> str:
    """The columns that a column is computed from, and what those are computed from."""
    definition = read_definition(folder, fingerprint)
    if definition.given is not None:
        return "given"
    inputs = [
        name if below.startswith(BASE) else f"{name} ({_lineage(folder, below)})"
        for name, below in zip(definition.reads, definition.inputs, strict=True)
    ]
    return ", ".join(inputs) or "no columns"


def _outdated_line(folder: Folder, now: Mapping[str, str], fingerprint: str) -> list[str]:
    """A line that names the columns of which older versions are read, if there are any."""
    found = sorted(_outdated(folder, now, fingerprint))
    if not found:
        return []
    names = ", ".join(found)
    return [f"reads {names} as of its definition, not as now: derive it again to read the new one"]


def _outdated(folder: Folder, now: Mapping[str, str], fingerprint: str) -> set[str]:
    definition = read_definition(folder, fingerprint)
    found = set()
    for name, below in zip(definition.reads, definition.inputs, strict=True):
        if now.get(name) != below and name != definition.name:  # x = x + 1 reads the x before
            found.add(name)
        if not below.startswith(BASE):
            found |= _outdated(folder, now, below)
    return found


def compare(folder: Folder, old: Version, new: Version) -> list[str]:
    """One line for each difference between two versions."""
    ways = (_column_lines, _row_lines, _stored_lines)
    return [line for lines in ways for line in lines(folder, old, new)]


def _column_lines(folder: Folder, old: Version, new: Version) -> list[str]:
    before, after = current(folder, old), current(folder, new)
    lines = [f"- {name}" for name in before if name not in after]
    for name, fingerprint in after.items():
        if name not in before:
            lines.append(f"+ {name}: {_definition_text(folder, fingerprint)}")
        elif before[name] != fingerprint:
            texts = [_definition_text(folder, each) for each in (before[name], fingerprint)]
            lines.append(f"~ {name}: {' → '.join(texts)}")
    return lines


def _definition_text(folder: Folder, fingerprint: str) -> str:
    if fingerprint.startswith(BASE):
        return "as appended"
    head, _, rest = read_definition(folder, fingerprint).text.partition("\n")
    return head + (" …" if rest else "")


def _row_lines(folder: Folder, old: Version, new: Version) -> list[str]:
    before = {f.id: f.live for f in folder.all_fragments(old)}
    after = {f.id: f.live for f in folder.all_fragments(new)}
    changes = [after.get(name, 0) - before.get(name, 0) for name in before | after]
    added, gone = sum(n for n in changes if n > 0), -sum(n for n in changes if n < 0)
    return [f"{sign} {plural(n, 'row')}" for sign, n in (("+", added), ("-", gone)) if n]


def _stored_lines(folder: Folder, old: Version, new: Version) -> list[str]:
    lines = []
    for name, fingerprint in new.definitions:
        before = sum(is_stored(f, fingerprint) for f in folder.all_fragments(old))
        after = sum(is_stored(f, fingerprint) for f in folder.all_fragments(new))
        if before != after:
            lines.append(f"  {name}: stored for {plural(after, 'fragment')}, before {before}")
    return lines
