"""What differs between two versions of a table."""

from __future__ import annotations

from silva.insight.words import plural
from silva.store.definitions import BASE, current, read_definition
from silva.store.folder import Folder
from silva.store.manifest import Version
from silva.store.stored import is_stored


def compare(folder: Folder, old: Version, new: Version) -> list[str]:
    """A line for each difference."""
    return [*_columns(folder, old, new), *_rows(folder, old, new), *_stored(folder, old, new)]


def _columns(folder: Folder, old: Version, new: Version) -> list[str]:
    before, after = current(folder, old), current(folder, new)
    lines = [f"- {name}" for name in before if name not in after]
    for name, fingerprint in after.items():
        if before.get(name) == fingerprint:
            continue
        text = _text(folder, fingerprint)
        if name in before:
            lines.append(f"~ {name}: {_text(folder, before[name])} → {text}")
        else:
            lines.append(f"+ {name}: {text}")
    return lines


def _text(folder: Folder, fingerprint: str) -> str:
    if fingerprint.startswith(BASE):
        return "as appended"
    head, _, rest = read_definition(folder, fingerprint).text.partition("\n")
    return head + (" …" if rest else "")


def _rows(folder: Folder, old: Version, new: Version) -> list[str]:
    before = {f.id: f.live for f in folder.all_fragments(old)}
    after = {f.id: f.live for f in folder.all_fragments(new)}
    added = sum(rows for name, rows in after.items() if name not in before)
    gone = sum(rows for name, rows in before.items() if name not in after)
    fewer = [before[name] - rows for name, rows in after.items() if name in before]
    gone += sum(n for n in fewer if n > 0)
    added += sum(-n for n in fewer if n < 0)
    lines = [f"+ {plural(added, 'row')}"] if added else []
    return lines + ([f"- {plural(gone, 'row')}"] if gone else [])


def _stored(folder: Folder, old: Version, new: Version) -> list[str]:
    lines = []
    for name, fingerprint in new.definitions:
        before = sum(is_stored(f, fingerprint) for f in folder.all_fragments(old))
        after = sum(is_stored(f, fingerprint) for f in folder.all_fragments(new))
        if before != after:
            lines.append(f"  {name}: stored for {plural(after, 'fragment')}, before {before}")
    return lines
