"""Reads the states of silva 0.1 (version 1), and converts their cursors to today's form.

In version 1 a cursor's form depended on the run: under `Skip` every stage wrapped its input's
cursor as `{"in": cursor, "failed": [failed, seen]}`; empty fields were left out; what belonged to a
rank stood beside the shards (`turn`, `taken`, `failed in …`); and marks named the number of a unit
but no pass. A state that is ambiguous is refused. Whatever does not look like a cursor is passed on
as it is: the check that follows refuses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from silva.errors import StateError
from silva.order import cursors as forms
from silva.order.cursor_checks import shown
from silva.order.cursors import Cursor, Form, Mark
from silva.order.shards import share

VERSION = 1
_DEEPEST = 64
"""The most stages that may have wrapped one cursor."""
_OF_RANK = ("turn", "taken", "failed in ")


def upgrade(state: dict[str, Any], form: Form) -> dict[str, Any]:
    """The cursors and failures of a state of version 1."""
    own = {k: v for k, v in state["cursors"].items() if not _is_of_rank(k)}
    turn, failed = state["cursors"].get("turn", 0), 0
    for name, count in state["cursors"].items():
        if _is_of_rank(name):
            _check(count)
            failed += count if name.startswith("failed in ") else 0
    made: dict[str, Any] = {"cursors": {}, "failures": {}}
    for number, (shard, cursor) in enumerate(own.items()):
        upgrading = _Upgrade(state["seed"], state["epoch"], share(turn, len(own), number))
        made["cursors"][shard] = upgrading.cursor(form, cursor)
        made["failures"][shard] = [upgrading.failed + (failed if not number else 0), upgrading.seen]
    return made


def merge_cursors(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The cursors of all ranks as one."""
    found: dict[str, Any] = {}
    for cursors in states:
        for name, cursor in cursors.items():
            if not _is_of_rank(name):
                if name in found:
                    raise StateError(f"shard {shown(name)} is in two of the states")
                found[name] = cursor
                continue
            _check(cursor)
            if found.setdefault(name, cursor) != cursor:
                raise StateError(
                    f"the ranks differ in {name!r}, which belongs to a rank and not to a shard: "
                    "resume with the same number of ranks"
                )
    return found


def _is_of_rank(name: Any) -> bool:
    return isinstance(name, str) and name.startswith(_OF_RANK)


def _check(count: Any) -> None:
    if type(count) is not int or count < 0:
        raise StateError("a count in this state of version 1 is not a whole number")


class _Upgrade:
    """Converts one cursor to today's form, and adds up the failures counted in it."""

    def __init__(self, seed: int, epoch: int, turns: int) -> None:
        self._seed, self._epoch, self._turns = seed, epoch, turns
        self.failed = self.seen = 0

    def cursor(self, form: Form, cursor: Cursor) -> Cursor:
        wrappers: list[forms.PartsForm | forms.ChunksForm] = []
        while isinstance(form, forms.PartsForm | forms.ChunksForm):
            wrappers.append(form)
            form = form.input
        wraps: list[dict[str, Any]] = []
        while isinstance(cursor, dict) and "in" in cursor and len(wraps) < _DEEPEST:
            wraps.append(cursor)
            cursor = cursor["in"]
            self._count(wraps[-1].get("failed", (0, 0)))
        made = self._plain(form, cursor) if isinstance(cursor, dict) else cursor
        if made is None and not wraps:
            return None
        for wrapper, own in reversed(_owners(wrappers, wraps)):
            if isinstance(wrapper, forms.PartsForm):
                made = {"in": made, "done": own.get("done", [])}
            else:
                made = {"in": made, "given": own.get("given", 0)}
        return made

    def _count(self, counts: Any) -> None:
        if not isinstance(counts, list | tuple) or len(counts) != 2:
            raise StateError("the failures in this state of version 1 are not [failed, seen]")
        for count in counts:
            _check(count)
        self.failed, self.seen = self.failed + counts[0], self.seen + counts[1]

    def _plain(self, form: Form, cursor: dict[str, Any]) -> Cursor:
        match form, cursor:
            case forms.WindowsForm(), {"from": inner}:
                return {**cursor, "from": self.cursor(form.input, inner)}
            case forms.CountedForm(), {"of": inner}:
                return {**cursor, "of": self.cursor(form.input, inner)}
            case forms.ConcatForm(many), {"child": int(child), "of": inner} if child in range(
                len(many)
            ):
                return {**cursor, "of": self.cursor(many[child], inner)}
            case ((forms.ZipForm(many) | forms.MixForm(many)), {"each": list(each)}) if len(
                each
            ) == len(many):
                both = zip(many, each, strict=True)
                made = {**cursor, "each": [self.cursor(child, inner) for child, inner in both]}
                if isinstance(form, forms.MixForm) and form.repeats:
                    made.setdefault("passes", [0] * len(each))
                return made
            case forms.BucketForm(), {"of": inner, "waiting": list(waiting)}:
                return self._bucket(form, self.cursor(form.input, inner), waiting, cursor)
        return cursor

    def _bucket(
        self, form: forms.BucketForm, inner: Cursor, waiting: list[Any], cursor: dict[str, Any]
    ) -> Cursor:
        marks = [
            [self._mark(form.input, mark, inner) for mark in row] if isinstance(row, list) else row
            for row in waiting
        ]
        phase = "draining" if cursor.get("draining") else "filling"
        return {"of": inner, "waiting": marks, "given": self._turns, "phase": phase}

    def _mark(self, form: Form, mark: Mark, cursor: Cursor) -> Mark:
        """`cursor` is that of the same node, in today's form."""
        match form, mark:
            case forms.UnitsForm(), int(mark):
                unit, row = mark >> 32, mark & 0xFFFFFFFF
                found = np.flatnonzero(form.order(self._seed, self._epoch) == unit)
                return [int(found[0]), row] if len(found) else mark
            case forms.PartsForm(), [inner, *parts]:
                return [self._mark(form.input, inner, _of(cursor, "in")), *parts]
            case forms.WindowsForm(made=False), _:
                return self._mark(form.input, mark, _of(cursor, "from"))
            case forms.CountedForm(), _:
                return self._mark(form.input, mark, _of(cursor, "of"))
            case forms.ConcatForm(), [int(child), inner] if 0 <= child < len(form.many):
                of = _of(cursor, "of") if _of(cursor, "child") == child else None
                return [child, self._mark(form.many[child], inner, of)]
            case forms.ZipForm(), list() if len(mark) == len(form.many):
                both = enumerate(zip(form.many, mark, strict=True))
                return [self._mark(f, inner, _of(cursor, "each", i)) for i, (f, inner) in both]
            case forms.MixForm(), [int(child), inner] if 0 <= child < len(form.many):
                if _of(cursor, "passes", child):
                    raise StateError(
                        "a row waits in a bucket, and this state of version 1 does not record the "
                        "pass of its pipeline: start the epoch again"
                    )
                of = _of(cursor, "each", child)
                return [child, 0, self._mark(form.many[child], inner, of)]
            case ((forms.ChunksForm() | forms.WindowsForm()), _):
                raise StateError(
                    "rows wait in a bucket that were computed together with others, which this "
                    "state of version 1 does not name: start the epoch again"
                )
        return mark


def _of(cursor: Cursor, name: str, child: int | None = None) -> Any:
    """A field of a cursor, or one item of it; None where there is none."""
    found = cursor.get(name) if isinstance(cursor, dict) else None
    if child is None:
        return found
    return found[child] if isinstance(found, list) and child < len(found) else None


def _owners(
    wrappers: list[forms.PartsForm | forms.ChunksForm], wraps: list[dict[str, Any]]
) -> list[tuple[forms.PartsForm | forms.ChunksForm, dict[str, Any]]]:
    """The wrapped cursor that belongs to each node."""
    if len(wrappers) == 1 and wraps:
        name = "done" if isinstance(wrappers[0], forms.PartsForm) else "given"
        return [(wrappers[0], next((wrap for wrap in wraps if name in wrap), wraps[-1]))]
    if len(wrappers) not in (0, len(wraps)):
        raise StateError("the cursor of this state of version 1 does not fit this pipeline")
    return list(zip(wrappers, wraps, strict=False))
