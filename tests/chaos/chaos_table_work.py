"""Those who work on one table at once: run as a script, as a writer, a collector of garbage, a
reader, or the one who looks at it last.

A writer notes in a file of its own, which is on no small disk, what it begins and what it was told
is done. What it had begun when it was killed it looks up in the table when it comes back: it must
be there wholly or not at all, and stay so. A reader holds every version against these notes: what
was done before it looked is there, what was not begun when it had looked is not.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chaos_script import again_and_again, is_full, say, start
from chaos_table_model import MINE, Notes, check, is_there, rows_of

import silva as sv

HELD = 6
"""Appends that a writer lets stay."""


class Writer:
    """Appends, deletes, puts and derives, at random."""

    def __init__(self, told: dict[str, Any]) -> None:
        self._path, self._name = told["table"], told["number"]
        self._file = Path(told["notes"]) / f"{told['number']}.notes"
        self._out = os.open(self._file, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        self._notes = Notes.read(self._file)
        self._settle()

    def turn(self) -> None:
        kept = self._notes.kept()
        kinds = ["append", "append", "put", "share", "derive"] if kept else ["append"]
        kind = "delete" if len(kept) >= HELD else random.choice(kinds)
        number = len(self._notes.begun)
        what: Any = number
        if kind == "append":
            what = (self._name + 1) * MINE + number
        elif kind == "delete":
            what = random.choice(kept)
        elif kind in ("put", "share"):
            what = random.sample(kept, random.randint(1, len(kept)))
        self._note(number, kind, what)
        try:
            getattr(self, f"_{kind}")(sv.Table.open(self._path), number, what)
        except (sv.SilvaError, OSError) as error:
            if not is_full(error) and "was collected by gc(versions=" not in str(error):
                raise
            say("error" if is_full(error) else "done", type(error).__name__, str(error)[:200])
            self._settle()
            time.sleep(0.02)
        else:
            self._note(number, True)
            say("done", kind)

    def _note(self, number: int, *what: Any) -> None:
        """On the disk of the notes at once, or not at all."""
        os.write(self._out, json.dumps([number, *what]).encode() + b"\n")
        if len(what) == 1:
            self._notes.settled[number] = what[0]
        else:
            self._notes.begun[number] = (what[0], what[1])

    def _append(self, table: sv.Table, number: int, append: int) -> None:
        table.append(rows_of(append))

    def _delete(self, table: sv.Table, number: int, append: int) -> None:
        table.delete(sv.col("append") == append)

    def _put(self, table: sv.Table, number: int, appends: list[int]) -> None:
        keys = [i for append in appends for i in rows_of(append)["id"].to_pylist()]
        table.put(f"put{self._name}", [number] * len(keys), keys=keys, default=-1)

    def _share(self, table: sv.Table, number: int, appends: list[int]) -> None:
        keys = [i for append in appends for i in rows_of(append)["id"].to_pylist()]
        table.put("shared", [number] * len(keys), keys=keys)

    def _derive(self, table: sv.Table, number: int, again: int) -> None:
        name = f"derived{self._name}"
        table.derive(**{name: sv.col("id") * number}).materialize(name)

    def _settle(self) -> None:
        """Looks up what became of what it was at."""
        for number, (kind, what) in self._notes.begun.items():
            if number not in self._notes.settled:
                found = seen(self._path)
                self._note(number, is_there(found, self._name, number, kind, what))


def seen(path: str) -> dict[str, list[Any]]:
    """The columns of the version that there is now; of a later one, if it is given up meanwhile."""
    while True:
        number = sv.Table.open(path).version.number
        found = columns_of(path, number)
        if found is not None:
            return found


def columns_of(path: str, number: int) -> dict[str, list[Any]] | None:
    """The columns of a version; None if it was given up."""
    try:
        pinned = sv.Table.open(path).at(number)
        found: dict[str, list[Any]] = {name: [] for name in pinned.columns}
        with pinned.read().batch(4096).loader(backend="inline") as loader:
            for batch in loader:
                for name, column in batch.items():
                    found[name] += [getattr(v, "tolist", lambda v=v: v)() for v in column]
    except sv.SilvaError:
        if is_given_up(path, number):
            return None
        raise
    return found


def is_given_up(path: str, number: int) -> bool:
    try:
        sv.Table.open(path).at(number)
    except sv.TableError as error:
        return "was collected" in str(error)
    return False


class Reader:
    """Holds the table against the notes, and versions against what they were before."""

    def __init__(self, told: dict[str, Any]) -> None:
        self._path, self._notes, self._writers = told["table"], told["notes"], told["writers"]
        self._known: dict[int, dict[str, list[Any]]] = {}

    def turn(self) -> None:
        before = self._read_notes()
        check(seen(self._path), before, self._read_notes())
        say("done", "read")
        self._same_as_ever()

    def _read_notes(self) -> list[Notes]:
        return [Notes.read(Path(self._notes) / f"{i}.notes") for i in range(self._writers)]

    def _same_as_ever(self) -> None:
        """A version does not change, unless it is given up."""
        for number in {
            sv.Table.open(self._path).version.number,
            *random.choices([*self._known, 1]),
        }:
            found = columns_of(self._path, number)
            if found is None:
                self._known.pop(number, None)
            elif self._known.setdefault(number, found) != found:
                raise AssertionError(f"version {number} has changed")


def collect(told: dict[str, Any]) -> None:
    kept = random.choice((None, None, 2, 5, 10))
    try:
        sv.Table.open(told["table"]).gc(versions=kept)
    except (sv.SilvaError, OSError) as error:
        if kept is None or not is_full(error):  # who gives nothing up writes nothing
            raise
        say("error", type(error).__name__, str(error)[:200])
    else:
        say("done", "gc")
    time.sleep(random.uniform(0, 0.05))


def look_last(told: dict[str, Any]) -> None:
    """Nothing is under way: the table is what was noted, and `gc` leaves nothing else."""
    sys.path.append(str(Path(__file__).parents[1] / "store"))
    from store_tools import assert_no_orphans

    Reader(told).turn()
    sv.Table.open(told["table"]).gc()
    assert_no_orphans(told["table"])
    Reader(told).turn()
    Path(told["stop"]).touch()


def main(told: dict[str, Any]) -> None:
    role = told["role"]
    if role == "create":
        sv.Table.create(told["table"], rows_of(0), key="id", group="append")
        Path(told["stop"]).touch()
    seen(told["table"])  # Lance keeps sockets of its own from its first file on
    turns: dict[str, Callable[[], Any]] = {
        "create": lambda: None,
        "collector": lambda: collect(told),
        "last": lambda: look_last(told),
    }
    if role == "writer":
        turns["writer"] = Writer(told).turn
    elif role == "reader":
        turns["reader"] = Reader(told).turn
    again_and_again(told, turns[role])


if __name__ == "__main__":
    main(start())
