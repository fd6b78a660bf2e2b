"""How one stage is run at the moment: what its rows cost, and where it runs."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic

from silva.io.source import runs_user_code
from silva.optimize.model import OPERATORS_SHARE, Backend, Load, Shared, choose_place, predict
from silva.physical.cut import written
from silva.physical.stage import Result, Runs
from silva.physical.steps import Call, Keep, MapWhole
from silva.plan.function import Function
from silva.profile.costs import Cost
from silva.profile.disk import Disk
from silva.profile.gil import GilProbe
from silva.profile.machine import Machine
from silva.profile.objects import object_seconds
from silva.profile.speeds import crossing_seconds
from silva.run.blocks import Blocks, RowCost
from silva.run.cutting import Cutting
from silva.run.forecast import Counters, Forecasts
from silva.run.lane_stats import LaneStats
from silva.run.offload import Offload
from silva.run.taken import came_for, device_seconds, moved_by, taken
from silva.run.trial import MOSTLY, Trial
from silva.run.width import Width

_NEW_BLOCKS = 5
"""By then what was measured is about the steps as they are, and not as they were."""
_ENOUGH_SECONDS = 0.04
"""Time to watch a stage before deciding where it runs."""
_ENOUGH_KNOWN_SECONDS = 0.002
"""The same without functions of the user's: who holds the lock is known, only the cost is not."""
_WATCHED_SECONDS = 0.004
"""Python's lock changes hands every 5 ms: in less, a probe sees little."""


class Lane:
    def __init__(
        self, stage: Runs, name: str, backend: Backend | None, workers: int, budget: int
    ) -> None:
        self.stage = stage
        self.name = name
        self.forced = backend
        self.backend: Backend = backend or "inline"
        self.decided = backend is not None or workers == 0
        self.reason = "as asked for" if backend or not workers else "measuring"
        self.workers = workers
        self.width = Width(max(workers, 1))
        """Of the workers, how many are used."""
        self.disk: Disk | None = None
        """Where the files of its source lie, if it has any."""
        self.rows_left: int | None = None
        self.later_rows = 0
        """Rows of epochs to come, as far as can be told."""
        self.stats = LaneStats()
        self.blocks = Blocks(
            self.stats, budget, _calls_python(stage), alone=self.backend == "inline"
        )
        self.probe = GilProbe() if _has_functions(stage) else None
        """Watches the lock while functions run; of built-in operators it is known."""
        self.consumer_seconds = 0.0
        """Time that the consumer spent between two blocks: work that a worker could overlap with.
        """
        self.forecasts = Forecasts()
        """What was predicted, and what came of it."""
        self.alone: Load | None = None
        """What a row cost before the stage was given to workers: nobody was in its way."""
        self.earlier: Load | None = None
        """What a row cost when the stage had other steps, or the same in another order."""
        self._at = monotonic()
        self._seconds_per_row = 0.0
        self._cpu_per_row = 0.0
        self._waits_per_row = 0.0
        """For rows of a block that are read at once, as from an object store."""
        self._handed = 0.0
        """Bytes that a worker elsewhere would be sent or send back."""
        self._objects = 0.0
        """Seconds a row takes to be written down and read again, where it holds Python objects."""
        self._warm_since = Counters(0, 0.0, 0.0, 0.0, 0.0, 0)
        self._trial: Trial | None = None
        """On workers, until it is clear that they help."""
        self._tried = False
        """Where the stage is fastest was measured."""
        self._reason_here = ""
        """Why it ran where it did before it went to the cluster."""
        self._no_help: str | None = None
        """Why workers are of no use for the stage in one piece."""
        self._seeded = False
        self._watching: GilProbe | None = None
        """The probe, if it watched the block that is done next."""
        self.may_cut = False
        self.cutting = Cutting()
        """Whether the stage is better off as two."""
        self.offload: Offload | None = None
        """Whether it is better off on a cluster, where there is one."""
        self.meanwhile: Backend | None = None
        """Where it runs while the cluster's actors start."""
        self._local_workers = workers

    @property
    def backends(self) -> tuple[Backend, ...]:
        """Where its parts run."""
        chosen = self.cutting.chosen
        return (self.backend,) if chosen is None else chosen.backends

    def follow(self, stage: Runs) -> None:
        """The stage has become another: what was measured of its steps is not about these."""
        if stage.label != self.stage.label:
            self.earlier = self.average() if self.stats.steps else None
            self.stats.followed = self.stats.again = 0
            self.forecasts.forget(not_before=self.stats.blocks + _NEW_BLOCKS)
            self.alone = None
            self.cutting.forget(self.stage, self.stats.steps)
            if self.offload is not None:
                self.offload.forget()
            self.stats.steps, self.stats.late = [], Cost()
            if self.probe is not None or _shape(stage) != _shape(self.stage):
                self._measure_again()
        self.stage = stage

    def _measure_again(self) -> None:
        """Where the stage runs is open, and what it costs there unknown."""
        if self.forced is not None or not self.workers:
            return
        self._settle_at("inline")
        self.reason, self.decided = "measuring", False
        self._trial, self._tried, self._no_help = None, False, None
        self._warm_since = self.counters
        if self.probe is not None:
            self.probe = GilProbe()

    @property
    def rows_to_come(self) -> int:
        """In this epoch and later ones, as far as can be told."""
        return (self.rows_left or 0) + self.later_rows

    @property
    def rows_ahead(self) -> int:
        """Rows that workers may have in hand, about."""
        return 0 if self.backend == "inline" else 2 * self.width.now * self.blocks.next_rows()

    @property
    def reads(self) -> bool:
        """Its workers read their rows themselves."""
        return getattr(self.stage, "read", None) is not None

    def learn(self, result: Result, rows_in: int) -> None:
        """Takes note of a finished block."""
        watched, self._watching = self._watching, None
        self._tick()
        stats, block = self.stats, result.block
        nbytes = block.nbytes
        stats.blocks += 1
        stats.rows_in += rows_in
        stats.rows_out += len(block)
        stats.bytes_out += nbytes
        self._handed += nbytes if self.reads else nbytes + result.bytes_in
        stats.busy += result.seconds
        stats.cpu += result.cpu
        stats.moved += moved_by(result)
        stats.came = stats.came.plus(came_for(result))
        stats.followed += 1
        stats.again += result.again
        self._seeded = self._seeded or result.seeded is not None
        if stats.blocks == 1:
            self._warm_since = self.counters
        elif stats.blocks == 2 and result.uses:
            stats.steps, stats.late = [], Cost()  # in the first block, libraries were imported
        if len(stats.steps) < len(result.uses):
            stats.steps = [Cost() for _ in result.uses]
        for cost, use in zip(stats.steps, result.uses, strict=False):
            cost.add(use)
            if watched is not None:
                held, looked = watched.held(use.began, use.began + use.seconds)
                cost.locked, cost.watched = cost.locked + held, cost.watched + looked
        if stats.steps:
            stats.steps[0].disk += result.came.disk
            stats.steps[0].network += result.came.network.nbytes
        if result.late is not None:
            stats.late.add(result.late)
        if rows_in == 0:
            return
        if not self.decided and self.probe is not None:
            self._objects = object_seconds(block) * len(block) / rows_in
        weight = 0.5 if min(stats.blocks, stats.followed + 1) > 2 else 1.0
        self._seconds_per_row += weight * (result.seconds / rows_in - self._seconds_per_row)
        self._cpu_per_row += weight * (result.cpu / rows_in - self._cpu_per_row)
        nbytes_a_row = max(nbytes, result.bytes_in) / rows_in
        waits = result.waited / rows_in if _reads_at_once(self.stage) else 0.0
        self._waits_per_row += weight * (waits - self._waits_per_row)
        row = RowCost(self._seconds_per_row, self._waits_per_row, nbytes_a_row)
        actors = self.width.now if self.backend == "ray" else 0
        self.blocks.learn(row, weight, actors, self.rows_left)

    def begin(self, rows: int | None, epoch: int, epochs: int | None) -> None:
        """An epoch begins: what was too little for a worker before may be enough by now. Where
        nobody says how many epochs there are, as many are expected as there were."""
        self.rows_left = rows
        self._at = monotonic()
        more = epoch if epochs is None else max(epochs - epoch - 1, 0)
        self.later_rows = more * (rows or 0)
        if self.forced is None and self.backend == "inline" and self.workers and not self._tried:
            self.decided = False

    def watch(self) -> GilProbe | None:
        """The probe, where the next block is worth watching: long enough to tell something, or due
        because a decision is."""
        if self.decided or self.probe is None or not self.stats.blocks:
            return None
        long = self.blocks.rows * self._seconds_per_row > _WATCHED_SECONDS
        self._watching = self.probe if long or self._warm > _ENOUGH_SECONDS / 2 else None
        return self._watching

    def decide(self) -> None:
        """Chooses the backend once enough was seen, by what the stage costs and who holds the
        lock; and predicts what will come of it."""
        enough = _ENOUGH_KNOWN_SECONDS if self.probe is None else _ENOUGH_SECONDS
        if self._warm < enough:
            return
        self._choose()
        self._judge()
        self._consider_cut()
        self._consider_cluster()
        self._predict()

    @property
    def _warm(self) -> float:
        """Seconds of work since the first block, in which libraries are imported, or since the
        stage has changed."""
        return self.stats.busy - self._warm_since.busy

    def _choose(self) -> None:
        if self.decided:
            return
        if self.probe is not None and not self.probe.seconds:
            return  # the next block is watched
        self.decided = True
        load, busy = self.load(), max(self.stats.busy, 1e-9)
        left = float("inf") if self.rows_left is None else self.rows_left * load.seconds
        place = choose_place(
            load,
            self.workers,
            left=left + self.later_rows * load.seconds,
            meanwhile=self.consumer_seconds / busy,
            shares_generators=self._seeded,
        )
        self.alone = load
        pace = self.counters.pace(self._warm_since)
        if place.speeds and self.backend == "inline" and pace is not None:
            promised = {backend: pace * speed for backend, speed in place.speeds}
            cpu = load.cpu if load.cpu > MOSTLY * load.seconds else 0.0
            self._trial = Trial(pace, promised, self.counters, 2 * self.workers + 1, cpu)
        self.move(place.backend, place.reason)

    def _judge(self) -> None:
        """To where the stage is fastest, once it turns out that it is not where it was put."""
        trial = self._trial
        if trial is None:
            return
        best = trial.judge(self.backend, self.counters)
        if not trial.open:
            self._trial, self._tried = None, True
        if best is None or best == self.backend:
            return
        told = f"as measured: {trial.told()}"
        if best == "inline":
            self._look_for_cut()
            if self.cutting.proposal is not None:  # in two, workers may help
                self.cutting.least, self._no_help = trial.alone, told
                return
        self.move(best, told)

    def move(self, backend: Backend, reason: str) -> None:
        """From now on the stage runs elsewhere: what was predicted is not about that place."""
        if backend != self.backend or self.cutting.chosen is not None:
            self.forecasts.forget()
        self.cutting.give_up()
        self._settle_at(backend)
        self.reason = reason

    def _settle_at(self, backend: Backend) -> None:
        """The workers of that place are the stage's from now on."""
        away = backend == "ray"
        if away != (self.backend == "ray") and self.offload is not None:
            self.meanwhile = self.backend if away else None
            self.workers = self.offload.actors if away else self._local_workers
            self.width = Width(max(self.workers, 1), self.width.demand)
        self.backend = backend

    def _consider_cluster(self) -> None:
        """To the cluster where the cores here are too few, and back where that was no help."""
        offload = self.offload
        if offload is None or self.forced is not None or not self.decided or self._trial:
            return
        if self.backend == "ray":
            if offload.failed(self.counters):
                self.move(self.meanwhile or "inline", self._reason_here)
            return
        inline = self.backend == "inline"
        if offload.wanted(
            self.counters,
            self.alone or self.load(),
            waited=self.stats.busy if inline else self.stats.starved,
            cores=Machine.here().cpus,
            full=inline or self.width.now == self.width.most,
        ):
            self._reason_here = self.reason
            self.move("ray", "local cores are too few")
            offload.begin(self.counters)

    def _consider_cut(self) -> None:
        """Cuts the stage in two where that should pay, once it has run in one piece for a while;
        and puts it together again where it did not."""
        if self._trial is not None or self.backend in ("inline", "ray"):
            return
        self._look_for_cut()
        if not self.cutting.looked(self.counters):
            return
        self.forecasts.forget(not_before=self.stats.blocks + _NEW_BLOCKS)
        if self.cutting.chosen is None and self._no_help is not None:
            self.move("inline", self._no_help)

    def _look_for_cut(self) -> None:
        may = self.may_cut and self.forced is None and not self._seeded
        if not may or not self.cutting.due(self.stats.followed):
            return
        left = float("inf") if self.rows_left is None else self.rows_left + self.later_rows
        self.cutting.consider(
            self.stage,
            self.stats,
            self.load(),
            lock_share=None if self.probe is None else self.probe.share,
            stretch=self._stretch,
            workers=self.workers,
            cores=Machine.here().cpus,
            consumer=self.consumer_seconds / max(self.stats.rows_in, 1),
            block_rows=self.blocks.next_rows(),
            left=left,
            since=self.counters,  # not since the workers began: they were cold
        )

    @property
    def _stretch(self) -> float:
        """Seconds for each CPU second, when the stage was alone."""
        alone = self.alone
        return 1.0 if alone is None or not alone.cpu else max(alone.seconds / alone.cpu, 1.0)

    def _predict(self) -> None:
        """Says now how fast the stage will be, to be judged later."""
        width = 0 if self.backend == "inline" else self.width.now
        first = self.forecasts.first
        if first is not None and first.workers != width:
            self.forecasts.forget()
        lock_known = self.probe is None or self.probe.seconds or self.backend != "threads"
        if self.decided and lock_known and self.forecasts.due(self.counters):
            cores = Machine.here().cpus
            # by the latest stretch alone: in the first, workers may still have been cold
            made = self.forecasts.made
            load = self._since(made[-1].since) if made else self.load()
            prediction = self.cutting.prediction(self.stats, width, cores) or predict(
                load, self.backend, width, cores
            )
            self.forecasts.add(prediction, self.backend, width, self.counters)

    @property
    def counters(self) -> Counters:
        stats = self.stats
        return Counters(
            stats.rows_in, stats.elapsed, stats.starved, stats.busy, stats.cpu, stats.blocks,
            stats.ready, stats.came, stats.moved,
        )  # fmt: skip

    def ready(self, more: int) -> int:
        """So many more rows wait for the consumer, in one of the windows over the stage."""
        self.stats.ready += more
        return more

    def returned(self, given: float, starting: bool) -> None:
        """The consumer, who was given a block at `given`, is back for the next; `starting` while
        the workers are."""
        self.consumer_seconds += monotonic() - given
        self._tick()
        if starting:
            self.cutting.since = self.counters
            if self.offload is not None and self.backend == "ray":
                self.offload.begin(self.counters)
            if self._trial is not None:
                self._trial.begin(self.counters)
        self.forecasts.learn(self.counters, starting)

    def _tick(self) -> None:
        now = monotonic()
        self.stats.elapsed += now - self._at
        self._at = now

    def load(self) -> Load:
        """What a row costs, as far as it was seen."""
        share = OPERATORS_SHARE if self.probe is None else self.probe.share
        handed_on = self._handed / max(self.stats.rows_in, 1)
        load = Load(self._seconds_per_row, self._cpu_per_row, share, handed_on, self._objects)
        if not self.workers or self.forced == "inline":
            return load  # nothing is decided by the rest
        shared = self._shared(self._warm_since)
        return replace(load, crossing=crossing_seconds(), shared=shared)

    def _shared(self, before: Counters) -> Shared:
        return taken(before, self.counters, self.workers, self.disk)

    @property
    def device_seconds(self) -> tuple[float, float]:
        """That a byte takes of the disk and of the network, as far as it is known."""
        return device_seconds(self._warm_since, self.counters, self.disk)

    def average(self) -> Load:
        """What a row costs on average since the stage runs where it runs; until then, lately."""
        first = self.forecasts.first
        load = self.load() if first is None else self._since(first.since)
        since = self._warm_since if first is None else first.since
        return replace(load, crossing=crossing_seconds(), shared=self._shared(since))

    def _since(self, before: Counters) -> Load:
        now, lately = self.counters, self.load()
        rows = now.rows - before.rows
        if rows <= 0:
            return lately
        seconds, cpu = (now.busy - before.busy) / rows, (now.cpu - before.cpu) / rows
        shared = self._shared(before) if any(lately.shared) else lately.shared
        return replace(lately, seconds=seconds, cpu=cpu, shared=shared)


def _shape(stage: Runs) -> list[tuple[type, tuple[str, ...]]]:
    """What a stage does, and to which columns. Operators that are called otherwise are at home
    where the stage was: they leave Python's lock alone and make the same."""
    return [(type(step), tuple(written(step))) for step in getattr(stage, "steps", ())]


def _has_functions(stage: Runs) -> bool:
    """Whether the stage calls functions of the user's, or reads a source that may hold the lock."""
    steps = getattr(stage, "steps", getattr(stage, "nodes", None))
    read = getattr(stage, "read", None)
    if steps is None or (read is not None and runs_user_code(read.source)):
        return True
    return any(
        isinstance(getattr(step, "function", None) or getattr(step, "step", None), Function)
        for step in steps
    )


def _reads_at_once(stage: Runs) -> bool:
    source = getattr(getattr(stage, "read", None), "source", None)
    return bool(getattr(source, "reads_at_once", False))


def _calls_python(stage: Runs) -> bool:
    """Whether a function is called for every row."""
    return any(isinstance(step, Call | MapWhole) for step in getattr(stage, "steps", ())) or any(
        isinstance(step, Keep) and isinstance(step.step, Function) and not step.step.marks.batched
        for step in getattr(stage, "steps", ())
    )
