"""The files that rows are, for error messages: a photo is known by its path, not by its key."""

from __future__ import annotations

from collections.abc import Callable

from silva.plan import node as logical


def file_of_rows(plan: logical.Node) -> Callable[[str], str | None] | None:
    """A function from the key of a row to its file; None if the rows of no source are files. The
    key of a row that `sample` drew is a place in the draw, which names no file."""
    nodes = list(logical.walk(plan))
    sources = [node.source for node in nodes if isinstance(node, logical.Source)]
    named = [getattr(source, "file_of", None) for source in sources]
    if not any(named) or any(isinstance(node, logical.Sample) for node in nodes):
        return None

    def file_of(key: str) -> str | None:
        tag, _, row = key.partition(":")
        row = row.partition(":")[0]
        if not (tag.isdecimal() and row.isdecimal()) or int(tag) >= len(named):
            return None
        find = named[int(tag)]
        return None if find is None else find(int(row))

    return file_of
