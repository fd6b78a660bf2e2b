"""A lane is one stage as it runs now: its counters, its block size, and the backend it runs on."""

from __future__ import annotations

import functools
import math
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from silva.cost.costs import BLOCK_BYTES, BLOCK_SECONDS, ENOUGH_BLOCKS, Cost, StepUse
from silva.cost.disk import Disk
from silva.cost.drift import Change, Drift
from silva.cost.experiment import ENOUGH, Experiment, Progress
from silva.cost.gil import WATCHED_SECONDS, GilProbe
from silva.cost.machine import queued_seconds
from silva.cost.model import (
    LITTLE_WORK,
    OPERATORS_SHARE,
    Backend,
    Place,
    Placed,
    Work,
    choose_place,
    loop_work,
    predict,
)
from silva.cost.pickling_cost import object_seconds
from silva.cost.speeds import crossing_seconds
from silva.io.paths import LocalFiles
from silva.physical.stage.read import ReadPlaces, ReadUnits
from silva.physical.stage.stage import Result, Runs, Stage
from silva.physical.stage.steps import Call, Keep, MapWhole, Spread, Step
from silva.plan import expr
from silva.plan.decision import Decision, Quantity
from silva.plan.function import Function
from silva.plan.operator import operator
from silva.run.memory import MemoryBudget
from silva.run.placement.measured import (
    Counters,
    Forecasts,
    LaneStats,
    device_seconds,
    measuring,
    settling,
    shared_seconds,
)
from silva.run.placement.sizing import QUICK_SECONDS, Blocks, Growth, RecentRow, Width
from silva.run.pools.task import functions_of
from silva.run.seams import Seams

if TYPE_CHECKING:
    from silva.run.placement.offload import Offload

_STAGE, _LOOP = "stage", "loop"
"""The costs of which the backend depends."""
_RECORDED = 4096
"""Blocks of a stage whose times are kept for traces: minutes of a run, in less than 1 MB."""


class BlockTimes(NamedTuple):
    """When a block was worked on, and when the consumer had it; seconds on the machine's clock."""

    start: float
    end: float
    rows: int
    backend: Backend


class Lane:
    """One stage as it runs now."""

    files: LocalFiles | None = None
    """The files of its source, if it reads any from a disk."""
    offload: Offload | None = None
    """Decides whether the stage moves to the cluster; None without a cluster."""
    meanwhile: Backend | None = None
    """The backend that runs it while the actors of the cluster start."""
    rows_left: int | None = None
    epoch_rows: int | None = None
    """Rows of an epoch, at whose end the workers run dry; None where that is not known, or where
    the next epoch begins before."""
    later_rows = 0
    """Rows of later epochs, as far as that is known."""
    alone: Work | None = None
    """The cost of a row before the stage was given to workers, without contention."""
    earlier: Work | None = None
    """The cost of a row before the steps of the stage changed, or their order."""

    def __init__(
        self,
        stage: Runs,
        name: str,
        backend: Backend | None,
        workers: int,
        memory: MemoryBudget,
        seams: Seams | None = None,
    ) -> None:
        self._seams = seams or Seams()
        self.stage = stage
        self.name = name
        self.forced = backend
        self.backend: Backend = backend or "inline"
        self.decided = backend is not None or workers == 0
        self.reason = "as asked for" if self.decided else "measuring"
        self.workers = self._local_workers = workers
        self.width = Width(max(workers, 1))
        """Controls how many of the workers are used."""
        self.growth = Growth(workers, workers)
        """Finds how many threads there are, if rows mostly wait."""
        self.stats = LaneStats()
        self.own = Cost()
        """What the consumer took itself between two blocks, which a worker could overlap: seconds
        for the rows of the blocks that it is done with."""
        self.blocks = Blocks(
            self.stats,
            memory.lane_bytes,
            _calls_python(stage),
            alone=self.backend == "inline",
            best_rows=_best_rows(stage),
            grows=backend == "inline",  # as `head` asks for
        )
        self.forecasts = Forecasts()
        """Predictions, each beside what was then measured."""
        self._at = self._seams.clock()
        self._own_since: tuple[int, float, float, float | None] | None = None
        """The consumer's thread, the time, its CPU seconds and, if they are sampled this time, its
        seconds in the run queue, when it had its latest block; None while it waits for one."""
        self._not_sampled = float("inf")
        """Seconds that the consumer had for itself since the run queue was last looked at."""
        self._queued_share = 0.0
        """Its share of that time in the run queue, when it was last looked at."""
        self.worked: deque[BlockTimes] = deque(maxlen=_RECORDED)
        """The latest blocks, on the workers."""
        self.looped: deque[tuple[float, float]] = deque(maxlen=_RECORDED)
        """From when to when the consumer had them."""
        self._recent = RecentRow()
        self._given = 1
        """Rows of the block that the consumer has."""
        self._handed = 0.0
        """Bytes that another process would be sent or would send back."""
        self._objects = 0.0
        """Seconds to pickle and unpickle the Python objects of a row."""
        self._warm_since = self.counters
        self._working: tuple[Backend, int] | None = None
        """The backend and the number of workers that were in use after the latest block."""
        self._settled_since = self.counters
        """When these workers had settled."""
        self._settled_at = 0
        """The number of blocks after which they have."""
        self._experiment: Experiment[Backend] | None = None
        """Compares backends by measurement; None before and after."""
        self.compared: Experiment[Backend] | None = None
        """The latest comparison of backends, also after it has ended."""
        self._tried = False
        """Whether the fastest backend was found by measurement."""
        self.changes: list[Decision] = []
        """The changes of its backend because costs had changed."""
        self._whole = Cost()
        """The cost of the stage on its present backend."""
        self.planning_seconds = 0.0
        """CPU seconds spent on choosing its backend."""
        self._drift = Drift({_STAGE: f"a row of {name}", _LOOP: "a row of the loop"})
        self._news: list[str] = []
        """What has changed since the backend was chosen, until it is chosen again."""
        self._again_at = 0.0
        """Seconds of work from which the backend may be chosen again."""
        self._left: Backend = self.backend
        """The backend before it was chosen again."""
        self._reason_here = ""
        """The reason for its backend before it moved to the cluster."""
        self.shares_generators = False
        """Whether its functions draw from global random generators."""
        self._has_functions = _has_functions(stage)
        self._watching: GilProbe | None = None
        """The probe, if it watches the next block."""
        self._disk: Disk | None = None

    @functools.cached_property
    def probe(self) -> GilProbe | None:
        """Measures who holds the GIL while the user's functions run; None without such
        functions."""
        return GilProbe() if self._has_functions else None

    def follow(self, stage: Runs) -> None:
        """Switches to the stage of a new plan; measurements of other steps are dropped."""
        if stage.label != self.stage.label:
            self.earlier = self.average() if self.stats.steps else None
            self.stats.followed = self.stats.again = 0
            self._working = None
            self.forecasts.forget(not_before=self.stats.blocks + ENOUGH_BLOCKS)
            self.alone = self._experiment = self.compared = None
            self._whole = Cost()
            self._forget_growth()
            if self.offload is not None:
                self.offload.forget()
            self.stats.forget_steps()
            self._warm_since = self.counters
            if self._has_functions or _shape(stage) != _shape(self.stage):
                self._measure_again()
            self.blocks.best_rows = _best_rows(stage)
        self.stage = stage

    def _measure_again(self) -> None:
        """Chooses the backend anew, by new measurements."""
        if self.forced is not None or not self.workers:
            return
        self._settle_at("inline")
        self.reason, self.decided = "measuring", False
        self._tried = False
        self._warm_since = self.counters
        if self._has_functions:
            self.probe = GilProbe()

    def _forget_growth(self) -> None:
        """The number of threads is that of the workers again."""
        if self.growth.now > self.growth.least:
            self.width.limit(self.growth.least)
        self.growth = Growth(self.growth.least, self.growth.most)

    def grow(self) -> None:
        """Uses more threads than workers if rows mostly wait and that is faster."""
        if self.backend != "threads" or self._experiment is not None:
            return
        now = self._progress_on_cores
        self.growth.judge(now)
        if self.growth.due(now):
            self.growth.look(now, self._useful_threads())
        self.width.limit(self.growth.now)

    @property
    def _progress_on_cores(self) -> Progress:
        """The counters of an experiment on a clock that stands still while threads are in line for
        a core. There are never more threads than the stage can use of the cores by itself, so it is
        other work that they wait for, which says nothing about their number."""
        now = self.counters.progress
        return now._replace(seconds=now.seconds - self.stats.in_line)

    def _useful_threads(self) -> float:
        """The number of threads that would use up the cores, the GIL, or what workers share."""
        work = self.average()
        work = work.taking(max(work.seconds - work.queued, work.cpu))
        stage = Placed(self.name, work, "threads", self.growth.most)
        best = predict([stage], self._seams.machine.cpus)
        useful = best.rows_per_second * work.seconds
        return useful + 2 * math.ulp(useful)  # 32, not 31.999…

    @property
    def rows_to_come(self) -> int:
        """Rows of this epoch and later ones that are still to come, as far as that is known."""
        return (self.rows_left or 0) + self.later_rows

    @property
    def rows_ahead(self) -> int:
        """About how many rows are in flight at most."""
        return 0 if self.backend == "inline" else 2 * self.width.now * self.blocks.next_rows()

    @property
    def reads(self) -> bool:
        """Whether workers read their rows from the source themselves."""
        return _read_of(self.stage) is not None

    def learn(self, result: Result, rows_in: int) -> None:
        """Updates the counters by a finished block."""
        watched, self._watching = self._watching, None
        self._tick()
        stats, block = self.stats, result.block
        nbytes = block.nbytes
        stats.add(result, rows_in, nbytes)
        stats.in_line += result.queued / max(self._width, 1)
        if stats.blocks > 1:  # in the first one, libraries were imported
            spent = max(result.seconds - result.queued, result.cpu)
            self._whole.add(StepUse(spent, result.cpu, rows_in, len(block)))
        # the clock of another machine is not this one's
        here = result.began and self.backend != "ray"
        start = result.began if here else time.perf_counter() - result.seconds
        self.worked.append(BlockTimes(start, start + result.seconds, rows_in, self.backend))
        stats.add_steps(result, watched)
        self._handed += nbytes if self.reads else nbytes + result.bytes_in
        self.shares_generators = self.shares_generators or result.seeded is not None
        if stats.blocks == 1:
            self._warm_since = self.counters
        if rows_in == 0:
            return
        if not self.decided and self._has_functions:
            self._objects = object_seconds(block) * len(block) / rows_in
        weight = 0.5 if min(stats.blocks, stats.followed + 1) > 2 else 1.0
        waited = result.waited if _reads_at_once(self.stage) else 0.0
        block_used = result.seconds, result.cpu, waited, max(nbytes, result.bytes_in)
        seen = RecentRow(*(amount / rows_in for amount in block_used))
        self._recent = self._recent.after(seen, weight)
        actors = self.width.now if self.backend == "ray" else 0
        self.blocks.learn(self._recent, actors, self.rows_left)

    def begin(self, rows: int | None, epoch: int, epochs: int | None) -> None:
        """Begins an epoch. What was too little work for a worker before may be enough now. If the
        number of epochs is unknown, as many are expected as there were."""
        self.rows_left = rows
        self.epoch_rows = rows if epochs is None else None
        self._at = self._seams.clock()
        more = epoch if epochs is None else max(epochs - epoch - 1, 0)
        self.later_rows = more * (rows or 0)
        if self.forced is None and self.backend == "inline" and self.workers and not self._tried:
            self.decided = False

    def close(self) -> None:
        """Ends measurements and requests that run in the background."""
        if self._disk is not None:
            self._disk.close()
        if self.offload is not None:
            self.offload.close()

    def watch(self) -> GilProbe | None:
        """The GIL probe, if it should watch the next block: the block is long enough, or a decision
        is due."""
        if self.decided or not self._has_functions or not self.stats.blocks:
            return None
        if self._has_little_left:
            return None
        long = self.blocks.rows * self._recent.seconds > WATCHED_SECONDS
        self._watching = self.probe if long or self._warm > BLOCK_SECONDS / 2 else None
        return self._watching

    def decide(self, rows: int) -> None:
        """Chooses the backend once enough was measured, compares it with others, considers the
        cluster, and predicts the throughput. `rows` of this epoch have just come."""
        if self.rows_left is not None:
            self.rows_left -= rows
        self._given = max(rows, 1)
        began = self._seams.cpu_clock()
        self._decide()
        self.planning_seconds += self._seams.cpu_clock() - began

    def _decide(self) -> None:
        self._reconsider()
        # built-in operators release the GIL, so only their cost is unknown
        enough = BLOCK_SECONDS if self._has_functions else QUICK_SECONDS
        if self._warm < enough:
            return
        self._choose()
        self._judge()
        self._consider_cluster()
        self._predict()

    @property
    def _warm(self) -> float:
        """Seconds of work since the first block, which imports libraries, or since the stage
        changed."""
        return self.stats.busy - self._warm_since.busy

    @property
    def _has_little_left(self) -> bool:
        """Whether too little of its work is known to be left for a worker, whoever holds the
        GIL."""
        left, known = self.rows_left or 0, self.rows_left is not None
        return known and (left + self.later_rows) * self._recent.seconds < LITTLE_WORK

    def _choose(self) -> None:
        if self.decided:
            return
        if self.probe is not None and not (self.probe.seconds or self._has_little_left):
            return  # the next block is watched
        self.decided = True
        if self._seams.measures_only:
            return
        load = self.load()
        place = self._place(load, self._consumer)
        self.alone = load
        pace = self.counters.pace(self._warm_since)
        promised: dict[Backend, float] = {}
        if place.speeds and self.backend == "inline" and pace is not None:
            promised = {backend: pace * speed for backend, speed in place.speeds}
            self._experiment = self.compared = Experiment(
                self.backend,
                pace,
                promised,
                place.backend,
                self.counters.progress,
                settling=settling(self.workers),
                cpu=load.cpu if load.cpu > load.seconds / 2 else 0.0,
                most={"processes": 1 / load.back} if load.back else {},
                own=self._consumer.seconds,
            )
        self.move(place.backend, place.reason)
        self._note_change(promised, pace or 0.0)

    def _place(self, work: Work, consumer: Work) -> Place:
        """The backend for rows of this work."""
        left = float("inf") if self.rows_left is None else self.rows_left * work.seconds
        return choose_place(
            work,
            self.workers,
            self._seams.machine.cpus,
            consumer=consumer,
            left=left + self.later_rows * work.seconds,
            shares_generators=self.shares_generators,
        )

    def _reconsider(self) -> None:
        """Chooses the backend again if what a row costs, or the loop, has changed so much that
        another one is expected to be faster. Each time, as much work must come before the next
        one as came before it, so that backends do not alternate."""
        if self.forced is not None or not self.decided or self._experiment is not None:
            return
        if not self.workers or self.backend == "ray" or self.alone is None:
            return
        for change in self._drift.compare({_STAGE: self._whole, _LOOP: self._loop}):
            self._news.append(str(change))
            if change.name == _STAGE:
                self.alone = _changed(self.alone, change)
                if self._disk is not None:
                    self._disk.measure_again()  # it may be the disk that has changed
        if not self._news or self.stats.busy < self._again_at:
            return
        loop = self._drift.present(_LOOP, self._loop)
        place = self._place(self.alone, loop_work(loop.seconds_a_row, loop.cpu_a_row))
        if place.backend == self.backend:
            self._news = []
            return
        self._again_at, self._left = 2 * self.stats.busy, self.backend
        self._measure_again()

    def _note_change(self, promised: Mapping[Backend, float], pace: float) -> None:
        """Notes that it runs on another backend because costs have changed."""
        if self._news and self.backend != self._left:
            self.changes.append(
                Decision(
                    f"{self.name} {self.backend}",
                    "; ".join(self._news),
                    Quantity(promised.get(self.backend, pace)),
                    default=Quantity(promised.get(self._left, pace)),
                    kind="change",
                    notes=(f"after {self.stats.rows_in:,} rows",),
                    after=self.stats.rows_in,
                )
            )
        self._news = []

    @property
    def _loop(self) -> Cost:
        """What the consumer's own loop takes."""
        return replace(self.own, cpu=self.stats.own_cpu)

    def _judge(self) -> None:
        """Moves the stage to the fastest backend if the chosen one turns out to be slower."""
        tried = self._experiment
        if tried is None:
            return
        best = tried.judge(self.counters.progress)
        if not tried.open:
            self._experiment = None
            self._tried = self._tried or "ray" not in tried.seen
            if "ray" in tried.seen and self.offload is not None:
                self.offload.conclude(tried)
        if best is not None and best != self.backend:
            here = self.backend != "ray"
            self.move(best, f"as measured: {_describe(tried)}" if here else self._reason_here)

    def move(self, backend: Backend, reason: str) -> None:
        """Moves the stage to a backend; predictions for the old one are dropped."""
        if backend != self.backend:
            self.forecasts.forget()
            self._forget_growth()
        self._settle_at(backend)
        self.reason = reason

    def _settle_at(self, backend: Backend) -> None:
        """Switches to the workers of a backend."""
        away = backend == "ray"
        if away != (self.backend == "ray") and self.offload is not None:
            self.meanwhile = self.backend if away else None
            self.workers = self.offload.actors if away else self._local_workers
            self.width = Width(max(self.workers, 1), self.width.demand)
        self.backend = backend
        self._whole = Cost()  # workers that compete take longer

    def _consider_cluster(self) -> None:
        """Tries the stage on the cluster if the local cores are too few."""
        offload = self.offload
        if offload is None or self.forced is not None or not self.decided or self._experiment:
            return
        if self.backend == "ray":
            return
        inline = self.backend == "inline"
        self._experiment = offload.propose(
            self.counters,
            Placed(self.name, self.alone or self.load(), self.backend, self.workers),
            waited=self.stats.busy if inline else self.stats.starved,
            cores=self._seams.machine.cpus,
            full=inline or self.width.now == self.width.most,
        )
        if self._experiment is not None:
            self._reason_here = self.reason
            self.move("ray", "local cores are too few")

    def _predict(self) -> None:
        """Records a prediction of the throughput, which is compared with measurements later."""
        width = self._width
        first = self.forecasts.first
        if first is not None and first.workers != width:
            self.forecasts.forget()
        lock_known = self.probe is None or self.probe.known or self.backend != "threads"
        if self.decided and lock_known and self.forecasts.due(self.counters):
            # by the latest stretch alone: in the first, workers may still have been cold
            made = self.forecasts.made
            load = self._since(made[-1].since) if made else self.load()
            stage = Placed(self.name, load, self.backend, width)
            prediction = predict([stage], self._seams.machine.cpus)
            self.forecasts.add(prediction, self.backend, width, self.counters)

    @property
    def counters(self) -> Counters:
        return self.stats.now()

    def begin_own(self) -> None:
        """The consumer has a block: from now on its time is its own."""
        # asking takes 20 µs, and the GIL from workers
        queued = queued_seconds() if self._not_sampled >= ENOUGH else None
        self._own_since = threading.get_ident(), time.perf_counter(), time.thread_time(), queued

    def end_own(self) -> None:
        """The consumer is about to wait for a block, or to run one itself."""
        since, self._own_since = self._own_since, None
        if since is None or since[0] != threading.get_ident():  # threads have their own clocks
            return
        spent = time.perf_counter() - since[1]
        self.stats.own_cpu += time.thread_time() - since[2]
        self._not_sampled += spent
        if since[3] is not None:
            share = min((queued_seconds() - since[3]) / max(spent, 1e-9), 1.0)
            self._queued_share, self._not_sampled = share, 0.0
        self.stats.own_queued += self._queued_share * spent

    def returned(self, given: float, starting: bool) -> None:
        """The consumer got a block at `given` and asks for the next one; `starting`: workers are
        still starting."""
        own = self._seams.clock() - given
        self.own.add(StepUse(own, 0.0, self._given, self._given))
        now = time.perf_counter()
        self.looped.append((now - own, now))
        self._tick()
        if starting and self._experiment is not None:
            self._experiment.begin(self.counters.progress)
        self.forecasts.learn(self.counters, starting)
        self._settle(starting)

    def _settle(self, starting: bool) -> None:
        """Notes since when the present workers have been at work, and all of them."""
        now, working = self.counters, (self.backend, self._width)
        if working != self._working or starting:
            self._working, self._settled_at = working, now.blocks + settling(self._width)
        if now.blocks <= self._settled_at:
            self._settled_since = now

    @property
    def settled_since(self) -> Counters | None:
        """The counters when the present number of workers had settled on the present backend; None
        while there is too little since then to measure."""
        blocks = self.stats.blocks - self._settled_since.blocks
        enough = blocks >= measuring(self._width)
        same = self._working == (self.backend, self._width)
        return self._settled_since if same and enough else None

    @property
    def settled(self) -> bool:
        """Whether its place is chosen, nothing is being compared, and its workers were measured:
        as it runs now, it would go on."""
        compares = self._experiment is not None or self.growth.tries
        measured = self.backend == "inline" or self.settled_since is not None
        return self.decided and measured and not compares

    @property
    def steady_pace(self) -> float | None:
        """Rows per second with the present number of workers, the consumer's own time included;
        None where too little was measured since they settled, or the consumer runs the stage."""
        since = None if self.backend == "inline" else self.settled_since
        return None if since is None else self.counters.pace(since)

    @property
    def _width(self) -> int:
        """Workers in use; 0 where the consumer runs the stage."""
        return 0 if self.backend == "inline" else self.width.now

    def _tick(self) -> None:
        now = self._seams.clock()
        self.stats.elapsed += now - self._at
        self._at = now

    @property
    def _consumer(self) -> Work:
        """What the consumer's own loop takes for a row of the stage."""
        return loop_work(self._loop.seconds_a_row, self._loop.cpu_a_row)

    def load(self) -> Work:
        """The recent cost of a row."""
        work = self._work(self._recent.seconds, self._recent.cpu)
        if not self.workers or self.forced == "inline":
            return work  # nothing is decided by the rest
        return self._with_shared(work, self._warm_since)

    def _work(self, seconds: float, cpu: float) -> Work:
        """The work of a row without what workers share."""
        share = OPERATORS_SHARE if self.probe is None else self.probe.share
        half = self._objects / 2
        return Work(seconds, cpu, min(seconds * share, cpu), pickling=half, back=half)

    def _with_shared(self, work: Work, before: Counters) -> Work:
        """The work with the seconds of shared resources since a moment, in line for a core, and of
        sending it."""
        handed_on = self._handed / max(self.stats.rows_in, 1)
        back = handed_on * crossing_seconds() + self._objects / 2
        now = self.counters
        shared = shared_seconds(before, now, self.workers, self._measured_disk)
        queued = (now.queued - before.queued) / max(now.rows - before.rows, 1)
        return work._replace(back=back, queued=queued, **shared._asdict())

    @property
    def device_seconds(self) -> tuple[float, float]:
        """Seconds per byte of the disk and of the network; 0 where that is not known."""
        return device_seconds(self._warm_since, self.counters, self._measured_disk)

    @property
    def _measured_disk(self) -> Disk | None:
        """The disk that holds its files, once enough was read from it to matter."""
        much = self.stats.came.disk >= BLOCK_BYTES
        if self._disk is None and self.files is not None and much:
            self._disk = Disk(self.files)
        return self._disk

    def average(self) -> Work:
        """The average cost of a row with the present workers; until enough of them was seen, since
        the first prediction, or since the stage has its present steps."""
        first = self.forecasts.first
        before = self._warm_since if first is None else first.since
        since = self.settled_since or before
        return self._with_shared(self._since(since), since)

    def _since(self, before: Counters) -> Work:
        """The average cost of a row since a moment."""
        now, lately = self.counters, self.load()
        rows = now.rows - before.rows
        if rows <= 0:
            return lately
        work = self._work((now.busy - before.busy) / rows, (now.cpu - before.cpu) / rows)
        return self._with_shared(work, before) if lately.shared else work._replace(back=lately.back)


def _describe(tried: Experiment[Backend]) -> str:
    """The measured throughput of each backend."""
    names = {"inline": "without workers", "threads": "on threads", "processes": "on processes"}
    return ", ".join(f"{pace:,.0f} rows/s {names[place]}" for place, pace in tried.seen.items())


def _changed(alone: Work, change: Change) -> Work:
    """The work of a row after it has drifted. Seconds and CPU have changed by their own factors: a
    slow disk takes no more CPU, so that threads can overlap the waits."""
    before, after = change.before, change.after
    times = after.seconds_a_row / max(before.seconds_a_row, 1e-12)
    cpu = after.cpu_a_row / before.cpu_a_row if before.cpu_a_row else times
    seconds = times * alone.seconds
    return alone.taking(seconds, min(cpu * alone.cpu, seconds))


def _steps_of(stage: Runs) -> tuple[Step, ...]:
    return stage.steps if isinstance(stage, Stage) else ()


def _read_of(stage: Runs) -> ReadPlaces | ReadUnits | None:
    return stage.read if isinstance(stage, Stage) else None


def _shape(stage: Runs) -> list[tuple[type, tuple[str, ...]]]:
    """The kind of each step and the columns that it writes. Built-in operators with other
    parameters suit the backend that was chosen: they too release the GIL and write the same."""
    return [
        (type(step), (step.column,) if isinstance(step, Spread) else step.writes)
        for step in _steps_of(stage)
    ]


def _has_functions(stage: Runs) -> bool:
    """Whether the stage calls the user's functions, or reads a source that may hold the GIL."""
    read = _read_of(stage)
    return bool(functions_of(stage)) or (read is not None and read.source.runs_user_code)


def _reads_at_once(stage: Runs) -> bool:
    read = _read_of(stage)
    return isinstance(read, ReadPlaces) and read.source.reads_at_once


def _best_rows(stage: Runs) -> int:
    """Rows that its operators should get at once, by what they declare of themselves."""
    calls = (
        part
        for step in _steps_of(stage)
        if step.runs is not None and not isinstance(step.runs, Function)
        for part in expr.walk(step.runs)
        if isinstance(part, expr.Call)
    )
    declared = ((operator(call.op).best_rows, dict(call.params)) for call in calls)
    return max((wish(params) for wish, params in declared if wish is not None), default=1)


def _calls_python(stage: Runs) -> bool:
    """Whether a Python function is called for every row."""
    return any(
        isinstance(step, Call | MapWhole)
        or (
            isinstance(step, Keep)
            and isinstance(step.step, Function)
            and not step.step.marks.batched
        )
        for step in _steps_of(stage)
    )
