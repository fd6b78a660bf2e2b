"""Token sequences packed into lines of one length, window by window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from silva.columns import Array, Block
from silva.errors import ColumnError, SilvaError
from silva.order.packing import Piece as Run
from silva.order.packing import pack_pieces, split_long
from silva.physical import plan as physical
from silva.plan.schema import POSITIONS, SEGMENTS
from silva.run.flows.sequence import Open, WindowTrail
from silva.run.flows.trail import Joined, Mark, Offset, Piece, Reader, State
from silva.run.session import Session


class PackFlow:
    """Each window of rows is packed by itself, so that state is (window, lines given)."""

    def __init__(
        self, node: physical.Pack, session: Session, open_flow: Open, state: State
    ) -> None:
        self._spec = node.spec
        self._window, self._begin, self._given = 0, None, 0
        if state is not None:
            self._window, self._begin = int(state["window"]), state["from"]
            self._given = int(state["given"])
        self._flow = open_flow(node.input, session, self._begin)

    def pieces(self) -> Iterator[Piece]:
        reader = Reader(self._flow.pieces())
        begin = self._begin
        while True:
            blocks, runs = reader.gather(self._spec.window)
            if not blocks:
                return
            rows = Joined(runs)
            block = Block.concat(blocks)
            end = rows.after(len(block) - 1)
            packed = self._pack(block)
            trail = WindowTrail(self._window, begin, end, len(packed), rows, None)
            given, self._given = self._given, 0
            if given < len(packed):
                yield Piece(packed.slice(given, len(packed)), Offset(trail, given))
            self._window += 1
            begin = end

    def _pack(self, block: Block) -> Block:
        spec = self._spec
        rows = {name: block.columns[name].rows() for name in spec.columns}
        lengths = np.array([len(x) for x in rows[spec.columns[0]]], dtype=np.int64)
        for name in spec.columns[1:]:
            other = np.array([len(x) for x in rows[name]])
            if (other != lengths).any():
                raise ColumnError(
                    f"pack: {spec.columns[0]!r} and {name!r} have rows of different lengths"
                )
        if spec.overflow == "error" and (lengths > spec.length).any():
            raise ColumnError(
                f"pack: a row of {int(lengths.max())} items is longer than {spec.length}; use "
                "overflow='split' or 'truncate'"
            )
        if spec.overflow == "truncate":
            lengths = np.minimum(lengths, spec.length)
        lines = pack_pieces(split_long(lengths, spec.length), spec.length)
        columns: dict[str, Array] = {
            name: Array(_fill(lines, rows[name], spec.length, spec.pad)) for name in spec.columns
        }
        segments = np.zeros((len(lines), spec.length), dtype=np.int32)
        positions = np.zeros((len(lines), spec.length), dtype=np.int32)
        for i, line in enumerate(lines):
            at = 0
            for number, (_, start, stop) in enumerate(line, start=1):
                size = stop - start
                segments[i, at : at + size] = number
                positions[i, at : at + size] = np.arange(size)
                at += size
        columns[SEGMENTS], columns[POSITIONS] = Array(segments), Array(positions)
        first = np.array([line[0][0] for line in lines], dtype=np.int64)
        part = np.array([line[0][1] for line in lines], dtype=np.uint64)
        places = part if block.places is None else block.places[first] ^ part
        return Block(dict(columns), block.ids[first], places)

    def fetch(self, marks: list[Mark]) -> Block:
        raise SilvaError("rows that were packed cannot be put into buckets: pack after bucket")


def _fill(lines: list[list[Run]], rows: list[Any], length: int, pad: int) -> np.ndarray:
    arrays = [np.asarray(x) for x in rows]
    kinds = {a.dtype for a in arrays if a.size} or {np.dtype(np.int64)}
    out = np.full((len(lines), length), pad, dtype=np.result_type(*sorted(kinds, key=str)))
    for i, line in enumerate(lines):
        at = 0
        for row, start, stop in line:
            out[i, at : at + stop - start] = arrays[row][start:stop]
            at += stop - start
    return out
