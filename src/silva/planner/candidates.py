"""The candidates of the search: what can be moved in a run of steps, and what a cache would
cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from silva.cost.costs import Cost
from silva.cost.machine import Machine
from silva.cost.memory_bandwidth import memory_seconds
from silva.cost.model import NOTHING, OPERATORS_SHARE, Hardware, Work, loop_work
from silva.cost.speeds import crossing_seconds
from silva.order.length import plan_rows
from silva.plan import expr
from silva.plan.fingerprint import opaque_parts
from silva.plan.function import Function, show_step
from silva.plan.node import Cache, Derive, Explode, Filter, Node, Select, option
from silva.plan.schema import columns, step_is_random, step_reads
from silva.planner.cache_locations import CacheLocation
from silva.planner.known_costs import Measured
from silva.planner.movable_runs import StepNode, StepRun, wanted_columns
from silva.planner.pieces import pieces, split
from silva.planner.search import Arrangement, CacheOffer, Keeping, Movable
from silva.rewrite.rules import filter_before_explode

_ROW_SECONDS = 3e-6
"""Seconds to look up a row and put it into its block."""
_FUNCTIONS_SHARE = 0.5
"""The share of a function's time under the GIL, until it has been measured."""
_NOT_MEASURED = Cost()
_HIDDEN = "part_{}"


@dataclass(frozen=True)
class _Unit:
    """What the search moves: reading, a filter, a derivation, or one operator of a derivation."""

    step: int
    """The number of the step that it belongs to; -1 for reading; from -2 downwards, explodes."""
    last: bool
    """It completes the step."""
    term: expr.Call | None
    """The step's expression up to here, if it does not complete the step."""
    nbytes: float
    """Bytes per row of what it derives, if it does not complete the step."""


class Units:
    """A run as the search sees it. Unit 0 reads the columns that are read at once, unit 1 those
    that can wait until a step needs them."""

    def __init__(
        self,
        plan: Node,
        run: StepRun,
        known: Measured,
        workers: int,
        reorders: bool,
        crosses: bool = True,
    ) -> None:
        """`crosses`: filters may come before an explode of which the cost is known."""
        self.run, self.known = run, known
        self.rows = plan_rows(run.below) if run.at_source else None
        source = run.source
        known_rows = source is None or source.source.identifies_rows
        self.portable = known_rows and not opaque_parts([step.step for step in run.steps])
        self._wanted = wanted_columns(plan, run.top)
        self._costly = frozenset(() if source is None else source.source.costly)
        self._block_rows = max(c.rows_a_block for c in (known.read, *known.steps.values()))
        """Rows of a block as it comes in."""
        self.units: list[_Unit] = []
        self.movables: list[Movable] = []
        self._add_reading()
        self._last: list[int] = []
        """The unit that completes each step."""
        self._explodes: list[int] = []
        """The unit of each explode."""
        allowed = filter_before_explode.RULE.name not in option(plan, "disable", ())
        crosses = crosses and reorders and allowed and self._knows_explodes()
        for number, before in enumerate(run.before(crosses)):
            self._add_explodes(number)
            explodes = run.explodes_before(number, crosses)
            self._add_step(number, before if reorders else (1 << number) - 1, explodes)
        back = self._back()
        always = Work(back=back or 0.0)
        self.hardware = Hardware(workers, Machine.here().cpus, back is not None, always)

    def seconds(self, found: Arrangement, epochs: int) -> float:
        """Seconds per row of the source over all epochs, beside the loop."""
        loop = loop_work(self.known.loop.seconds_a_row, self.known.loop.cpu_a_row)
        own = loop._replace(seconds=0.0, consumer=loop.seconds)
        first, later = (self.hardware.seconds(w.plus(own)) for w in (found.first, found.later))
        return first + (epochs - 1) * later

    def _back(self) -> float | None:
        """Seconds of the consumer per row of the source to receive results from another process;
        None if processes cannot be used."""
        left = math.prod(movable.keeps for movable in self.movables)
        out = self.nbytes(range(len(self.units)))
        return None if out is None or self._hands_objects() else left * out * crossing_seconds()

    def _hands_objects(self) -> bool:
        """Whether the run yields Python objects, which are expensive to send between processes."""
        costs = [self.known.read, self.known.late, *self.known.steps.values()]
        return any(self._wanted & cost.objects for cost in costs)

    def _add_reading(self) -> None:
        known = self.known
        late = known.late if known.late.rows else known.read if self._costly else _NOT_MEASURED
        first = _NOT_MEASURED if late is known.read else known.read
        own = self.run.source is not None
        for cost, before in ((first, 0), (late, 0b1)):
            work = self._work(cost, OPERATORS_SHARE) if own else Work()
            self.movables.append(Movable(work, 1.0, before, True))
            self.units.append(_Unit(-1, True, None, 0.0))

    def _knows_explodes(self) -> bool:
        return all(self._explode_cost(e).rows for _, e in self.run.explodes)

    def _parts_of(self, column: str) -> float:
        """The parts of a row's list, if the column is exploded."""
        return max(self.known.explodes.get(column, _NOT_MEASURED).selectivity, 1.0)

    def _explode_cost(self, explode: Explode) -> Cost:
        return self.known.explodes.get(explode.column, _NOT_MEASURED)

    def _add_explodes(self, number: int) -> None:
        """Adds the explodes right below a step. Nothing is cached after an explode, and no step
        that was written before it moves past it."""
        for below, explode in self.run.explodes:
            if below == number:
                cost = self._explode_cost(explode)
                before = (1 << len(self.units)) - 1
                parts = cost.selectivity if cost.rows else 1.0
                work, each = self._parted(cost, OPERATORS_SHARE)
                self.movables.append(Movable(work, parts, before, False, each))
                self.units.append(_Unit(-2 - len(self._explodes), True, None, 0.0))
                self._explodes.append(len(self.units) - 1)

    def _add_step(self, number: int, before: int, explodes: Sequence[int]) -> None:
        """`before` and `explodes`: the steps and the explodes that must come before it."""
        step = self.run.steps[number]
        cost = self.known.steps[step.id]
        needs = 0b11 if self._costly.intersection(step_reads(step.step)) else 0b1
        needs |= sum(1 << self._last[i] for i in range(number) if before >> i & 1)
        needs |= sum(1 << unit for unit in (self._explodes[i] for i in explodes))
        parts = pieces(step, cost.operators) if isinstance(step, Derive) else []
        left, random = 1.0, step_is_random(step.step)
        work, each = self._parted(
            cost, _FUNCTIONS_SHARE if isinstance(step.step, Function) else OPERATORS_SHARE
        )
        if parts:
            random = parts[-1].random
        for piece in parts[:-1]:
            part, begin = (NOTHING.plus(whole, piece.share) for whole in (work, each))
            self.movables.append(Movable(part, 1.0, needs, not piece.random, begin))
            self.units.append(_Unit(number, False, piece.term, piece.nbytes))
            needs = 1 << (len(self.units) - 1)
            left -= piece.share
        keeps = cost.selectivity if isinstance(step, Filter) else 1.0
        rest, begin = (NOTHING.plus(whole, max(left, 0.0)) for whole in (work, each))
        self.movables.append(Movable(rest, keeps, needs, not random, begin))
        self.units.append(_Unit(number, True, None, 0.0))
        self._last.append(len(self.units) - 1)

    def _parted(self, cost: Cost, usual: float) -> tuple[Work, Work]:
        """The work of a step per row that comes in, and per row of the source: that of its blocks,
        which is the same however few of their rows are left."""
        work, share = self._work(cost, usual), cost.block_share
        if not share:
            return work, NOTHING
        of_blocks = NOTHING.plus(Work(work.seconds, work.cpu, work.lock), share)
        each = NOTHING.plus(of_blocks, cost.rows_a_block / self._block_rows)
        return work.plus(of_blocks, -1.0), each

    def _work(self, cost: Cost, usual: float) -> Work:
        """The work of a step per row that comes in; `usual` is the assumed share of its time under
        the GIL where that was not measured."""
        share = usual if cost.lock_share is None else cost.lock_share
        seconds, cpu = cost.seconds_a_row, cost.cpu_a_row
        lock = min(seconds * share, cpu)
        return Work(seconds, cpu, lock, self._memory(cost), *self.known.pace.seconds(cost))

    def _memory(self, cost: Cost) -> float:
        """Seconds of memory bandwidth per row, for blocks of the size that was measured."""
        seconds = memory_seconds(
            cost.moved, cost.moved / max(cost.blocks, 1), cost.seconds / Machine.here().cpus
        )
        return min(seconds, cost.seconds) / max(cost.rows, 1)

    # What a set of units amounts to.

    def done(self, units: Sequence[int]) -> tuple[list[int], dict[int, _Unit]]:
        """The steps that these units complete, in the order given, and the steps that they
        begin."""
        whole = self.steps(units)
        parts: dict[int, _Unit] = {}
        for n in units:
            unit = self.units[n]
            if unit.step >= 0 and not unit.last:
                parts[unit.step] = unit
        return whole, {step: unit for step, unit in parts.items() if step not in whole}

    def steps(self, order: Sequence[int]) -> list[int]:
        """The order of the steps, each where it is completed."""
        return [self.units[n].step for n in order if self.units[n].last and self.units[n].step >= 0]

    def _nodes(self, order: Sequence[int]) -> Iterator[tuple[int, StepNode | Explode]]:
        """The steps and the explodes in this order, each with its number."""
        for n in order:
            number = self.units[n].step
            if number < -1:
                yield number, self.run.explodes[-2 - number][1]
            elif number >= 0 and self.units[n].last:
                yield number, self.run.steps[number]

    def live(self, whole: Sequence[int], parts: dict[int, _Unit]) -> frozenset[str]:
        """The columns of completed steps and of the source that are still needed."""
        steps = self.run.steps
        rest = [self._rest(i, parts) for i in range(len(steps)) if i not in whole]
        made = {name for s in rest for name in s.writes}
        needed = {name for s in rest for name in step_reads(s.step)}
        if rest:  # a run ends with a step above its explodes
            needed |= {explode.column for _, explode in self.run.explodes}
        there = {name for i in whole for name in steps[i].writes}
        there |= set(columns(self.run.below))
        return frozenset(((self._wanted - made) | needed) & there)

    def _rest(self, number: int, parts: dict[int, _Unit]) -> StepNode:
        """The part of a step that remains."""
        step = self.run.steps[number]
        if number not in parts:
            return step
        unit = parts[number]
        assert isinstance(step, Derive)
        assert unit.term is not None
        return split(step, unit.term, _HIDDEN.format(number))[1]

    def nbytes(self, units: Sequence[int]) -> float | None:
        """Bytes per row after these units; None if a column has not been measured."""
        whole, parts = self.done(units)
        total = sum(unit.nbytes for unit in parts.values())
        writers: dict[str, Cost] = {}
        for i in sorted(whole):
            step = self.run.steps[i]
            writers |= dict.fromkeys(step.writes, self.known.steps[step.id])
        for name in self.live(whole, parts):
            first = self.known.late if name in self.known.late.columns else self.known.read
            cost = writers.get(name, first)
            if name not in cost.columns:
                return None
            size = cost.bytes_a_row(name)
            if len(whole) == len(self.run.steps) and name not in writers:
                size /= self._parts_of(name)
            total += size
        return total

    # The run, arranged.

    def arranged(
        self, order: Sequence[int], cache_after: int | None, location: CacheLocation | None
    ) -> Node:
        if cache_after is None or location is None:
            return self.run.arranged([node for _, node in self._nodes(order)], None, ())
        whole, parts = self.done(order[:cache_after])
        used = set(columns(self.run.top)) | set(columns(self.run.below))
        first: list[StepNode | Explode] = [self.run.steps[i] for i in whole]
        then: list[StepNode | Explode] = []
        names = set(self.live(whole, parts))
        for i, step in self._nodes(order[cache_after:]):
            if i in parts and isinstance(step, Derive):
                name = _HIDDEN.format(i)
                while name in used:
                    name += "_"
                term = parts[i].term
                assert term is not None
                prefix, step = split(step, term, name)
                first.append(prefix)
                names.add(name)
            then.append(step)

        def cached(node: Node) -> Node:
            kept = tuple(name for name in columns(node) if name in names)
            below = node if columns(node) == kept else Select(node, kept)
            limit = location.nbytes if location.folder is not None else None
            return Cache(below, location.folder, limit, planned=True)

        return self.run.arranged(first, cached, then)

    def name(self, number: int) -> str:
        """A short name of a step."""
        return _name(self.run.steps[number])


def _name(step: StepNode) -> str:
    return ", ".join(step.into) if isinstance(step, Derive) else f"filter {show_step(step.step)}"


class Offer(CacheOffer):
    """What a cache at a location would cost after a set of units."""

    def __init__(self, units: Units, location: CacheLocation) -> None:
        self._units, self._location = units, location

    def after(self, done: int) -> Keeping | None:
        numbers = [i for i in range(done.bit_length()) if done >> i & 1]
        whole, parts = self._units.done(numbers)
        # a step that was written after a filter may rely on it: both are cached, or neither
        latest = max([*whole, *parts], default=-1)
        for i, step in enumerate(self._units.run.steps):
            if isinstance(step, Filter) and i not in whole and i < latest:
                return None
        nbytes = self._units.nbytes(numbers)
        if not nbytes:
            return None
        total = self.total(numbers)
        speeds = self._location.speeds
        return Keeping(
            write=nbytes * speeds.write + _ROW_SECONDS,
            read=nbytes * speeds.read + _ROW_SECONDS,
            fits=min(1.0, self._location.nbytes / total),
        )

    def total(self, numbers: Sequence[int]) -> float:
        """Bytes of all rows together."""
        left = 1.0
        for number in numbers:
            left *= self._units.movables[number].keeps
        return max((self._units.rows or 0) * left * (self._units.nbytes(numbers) or 0.0), 1.0)
