"""Simulates tasks that share resources, event by event.

A resource is anything that is limited: cores, the GIL, a disk, a link, the slots of a queue, the
bytes of a memory. A task takes its `holds` one after the other, then does its `uses` one after the
other, and gives back what it holds. A use names the amount that it needs of each resource *at the
same time*: `{"the cores": 0.02, "the GIL": 0.005}` is 20 ms of a core, a quarter of it under the
GIL; `{"link": 1e6, "switch": 1e6}` is a megabyte through both.

Under `"fifo"`, each unit of the capacity serves one use at a time, in the order of arrival. Under
`"fair"`, all uses run at once and share the capacity (max-min fair, as an operating system shares
cores and TCP shares a link). Either way a use takes `latency + amount / rate` if nobody is in its
way. The result is a function of the arguments alone: what happens at the same moment happens in
the order in which tasks were given.

>>> disk, cores = Resource("disk", rate=2e8, latency=0.01), Resource("cores", 2, policy="fair")
>>> tasks = []
>>> for i in range(3):
...     tasks.append(Task(f"read {i}", [{"disk": 4e6}]))
...     tasks.append(Task(f"decode {i}", [{"cores": 0.09}], after=[f"read {i}"]))
>>> trace = simulate([disk, cores], tasks)
>>> round(trace.makespan, 3), round(trace.busy("disk"), 3)  # two cores for three, from 90 ms on
(0.195, 0.09)
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from silva.cost.trace import ROUNDING, Span, Trace
from silva.errors import PlanError

_SHOWN = 5
"""Tasks that the message about a deadlock names."""


@dataclass(frozen=True)
class Resource:
    """Something limited that tasks share."""

    name: str
    capacity: float = 1.0
    """Uses at full speed at the same time; for what is held, the amount that can be held."""
    rate: float = 1.0
    """Amount per second that one use gets at most: bytes per second of a link; 1 if amounts are
    seconds."""
    latency: float = 0.0
    """Seconds before the first unit of a use, or of a batch, is done. A unit of the capacity under
    `fifo` is occupied meanwhile."""
    policy: Literal["fifo", "fair"] = "fifo"
    batch: int = 1
    """Waiting uses that are served together under `fifo`: their amounts add up, and the latency
    counts once."""
    linger: float = 0.0
    """Seconds that the first use waits for a batch to fill."""


@dataclass(frozen=True)
class Hold:
    """An amount of a resource that a task holds: a slot of a queue, a worker, bytes of memory."""

    resource: str
    amount: float = 1.0
    until: str | None = None
    """The task whose end gives it back; None for the task itself."""


@dataclass(frozen=True)
class Task:
    """Some work."""

    name: str
    uses: Sequence[Mapping[str, float]] = ()
    """Amounts by resource; those within one use are needed at the same time."""
    after: Sequence[str] = ()
    """Tasks that end before it starts."""
    at: float = 0.0
    """The moment, in seconds, before which it does not start."""
    holds: Sequence[Hold] = ()
    """What it takes before its first use, in this order."""


def simulate(resources: Iterable[Resource], tasks: Iterable[Task]) -> Trace:
    """Runs the tasks on the resources. Raises a `PlanError` that names them if some can never
    start.

    >>> slots = Resource("queue", 1)
    >>> tasks = [Task("a", holds=[Hold("queue", until="b")]), Task("b", holds=[Hold("queue")])]
    >>> simulate([slots], tasks)
    Traceback (most recent call last):
        ...
    silva.errors.PlanError: 1 of 2 tasks can never run: 'b' waits for 1 of 'queue', which has 0 left
    """
    return _Simulation(list(resources), list(tasks)).run()


class _Pool:
    """A resource while it is simulated."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.name, self.fair = resource.name, resource.policy == "fair"
        self.free, self.rounding = resource.capacity, resource.capacity * ROUNDING
        self.waiting: deque[tuple[_Running, float, float]] = deque()
        """Tasks, the amounts that they want to take, and since when."""


class _Running:
    """A task while it is simulated."""

    def __init__(self, number: int, task: Task) -> None:
        self.number, self.task = number, task
        self.blockers = len(set(task.after))
        self.followers: list[_Running] = []
        self.taken = 0
        """Holds, and pools of the present use, that it has taken."""
        self.use = -1
        """The number of its present use; -1 while it takes its holds."""
        self.waits_for: _Pool | None = None
        self.owes: list[tuple[_Pool, Hold, float, str]] = []
        """What its end gives back: the pool, the hold, since when, and the holder."""


class _Flow:
    """Uses that are being served: one, or a batch of them."""

    def __init__(self, members: list[_Running], amounts: dict[_Pool, float], began: float) -> None:
        self.members, self.began = members, began
        self.pools = list(amounts)
        self.left = max(amounts.values(), default=0.0)
        """What is left, in units of its largest amount."""
        self.needs = {p: a / self.left for p, a in amounts.items() if p.fair and a > 0}
        """The amount of each fair resource per unit."""
        rates = (p.resource.rate * self.left / a for p, a in amounts.items() if a > 0)
        self.most = min(rates, default=math.inf)
        self.speed = 0.0
        self.ends = math.inf

    @property
    def number(self) -> int:
        return self.members[0].number


class _Simulation:
    def __init__(self, resources: list[Resource], tasks: list[Task]) -> None:
        self.now = 0.0
        self.pools = {resource.name: _Pool(resource) for resource in resources}
        self.tasks = {task.name: _Running(i, task) for i, task in enumerate(tasks)}
        _check(resources, tasks)
        for running in self.tasks.values():
            for name in set(running.task.after):
                self.tasks[name].followers.append(running)
        self.ready: list[_Running] = []
        self.timers: list[tuple[float, int, _Flow | _Running | _Pool]] = []
        """What happens at a known moment: a task may start, a flow begins to share or ends, a
        batch has lingered enough."""
        self.timer_numbers = itertools.count()
        self.sharing: list[_Flow] = []
        """Flows on fair resources."""
        self.touched: dict[_Pool, None] = {}
        """Pools whose first waiting task may be able to go on."""
        self.spans: list[Span] = []
        self.finished: dict[str, float] = {}

    def run(self) -> Trace:
        for running in self.tasks.values():
            if not running.blockers:
                self._at(running.task.at, running)
        while self.timers or self.sharing:
            moments = [flow.ends for flow in self.sharing]
            self._advance(min(moments + [moment for moment, *_ in self.timers[:1]]))
            while self.ready or self.touched:
                arrived, self.ready = sorted(self.ready, key=lambda one: one.number), []
                for running in arrived:
                    self._proceed(running)
                touched, self.touched = self.touched, {}
                for pool in touched:
                    self._admit(pool)
        if len(self.finished) < len(self.tasks):
            raise PlanError(self._deadlock())
        return Trace(tuple(self.spans), self.finished)

    def _at(self, moment: float, what: _Flow | _Running | _Pool) -> None:
        heapq.heappush(self.timers, (moment, next(self.timer_numbers), what))

    def _advance(self, moment: float) -> None:
        """Goes to the next moment at which something happens, and lets it happen."""
        for flow in self.sharing:
            flow.left -= flow.speed * (moment - self.now)
        self.now, same = moment, moment * (1 + ROUNDING)
        ended = [flow for flow in self.sharing if flow.ends <= same]
        joined: list[_Flow] = []
        while self.timers and self.timers[0][0] <= same:
            what = heapq.heappop(self.timers)[2]
            if isinstance(what, _Running):
                self.ready.append(what)
            elif isinstance(what, _Pool):
                self.touched[what] = None
            else:
                (joined if what.needs else ended).append(what)
        if joined or ended:
            self.sharing = [flow for flow in self.sharing if flow.ends > same] + joined
            _share(self.sharing, self.now)
        for flow in sorted(ended, key=lambda flow: flow.number):
            self._end_use(flow)

    def _proceed(self, running: _Running) -> None:
        """Takes what the task needs next, or starts its use."""
        task = running.task
        if running.use < 0 and running.taken < len(task.holds):
            hold = task.holds[running.taken]
            return self._wait(running, self.pools[hold.resource], hold.amount)
        if running.use < 0:
            running.use, running.taken = 0, 0
        if running.use == len(task.uses):
            return self._finish(running)
        pools = [self.pools[name] for name in task.uses[running.use]]
        limited = [pool for pool in pools if not pool.fair]
        if running.taken < len(limited):
            return self._wait(running, limited[running.taken], 1.0)
        self._begin([running])

    def _wait(self, running: _Running, pool: _Pool, amount: float) -> None:
        running.waits_for = pool
        pool.waiting.append((running, amount, self.now))
        self.touched[pool] = None
        if pool.resource.linger and running.use >= 0:
            self._at(self.now + pool.resource.linger, pool)

    def _admit(self, pool: _Pool) -> None:
        """Gives what is free to the tasks that wait for it, in their order."""
        while pool.waiting and pool.waiting[0][1] <= pool.free + pool.rounding:
            running, amount, since = pool.waiting[0]
            if running.use >= 0 and pool.resource.batch > 1:
                if not self._is_due(pool, since):
                    return
                pool.free -= 1.0
                size = min(pool.resource.batch, len(pool.waiting))
                self._begin([pool.waiting.popleft()[0] for _ in range(size)])
                continue
            pool.waiting.popleft()
            pool.free -= amount
            if running.use < 0:
                hold = running.task.holds[running.taken]
                owner = running if hold.until is None else self.tasks[hold.until]
                owner.owes.append((pool, hold, self.now, running.task.name))
                if owner.task.name in self.finished:
                    self._give_back(owner)
            running.taken += 1
            self.ready.append(running)

    def _is_due(self, pool: _Pool, since: float) -> bool:
        full = len(pool.waiting) >= pool.resource.batch
        return full or self.now * (1 + ROUNDING) >= since + pool.resource.linger

    def _begin(self, members: list[_Running]) -> None:
        """Starts the present use of a task, or of a batch of tasks."""
        amounts: dict[_Pool, float] = {}
        for running in members:
            running.waits_for = None
            for name, amount in running.task.uses[running.use].items():
                pool = self.pools[name]
                amounts[pool] = amounts.get(pool, 0.0) + amount
        flow = _Flow(members, amounts, self.now)
        latency = sum(pool.resource.latency for pool in amounts)
        self._at(self.now + latency + (0.0 if flow.needs else flow.left / flow.most), flow)

    def _end_use(self, flow: _Flow) -> None:
        for pool in flow.pools:
            if not pool.fair:
                pool.free += 1.0
                self.touched[pool] = None
        for running in flow.members:
            for name, amount in running.task.uses[running.use].items():
                self.spans.append(Span(running.task.name, name, flow.began, self.now, amount))
            running.use, running.taken = running.use + 1, 0
            self.ready.append(running)

    def _finish(self, running: _Running) -> None:
        self.finished[running.task.name] = self.now
        self._give_back(running)
        for follower in running.followers:
            follower.blockers -= 1
            if not follower.blockers:
                self._at(max(self.now, follower.task.at), follower)

    def _give_back(self, running: _Running) -> None:
        for pool, hold, since, holder in running.owes:
            pool.free += hold.amount
            self.touched[pool] = None
            self.spans.append(Span(holder, pool.name, since, self.now, hold.amount, held=True))
        running.owes = []

    def _deadlock(self) -> str:
        stuck = [one for name, one in self.tasks.items() if name not in self.finished]
        said = ", ".join(map(self._why_stuck, stuck[:_SHOWN]))
        more = f", and {len(stuck) - _SHOWN} more" if len(stuck) > _SHOWN else ""
        return f"{len(stuck)} of {len(self.tasks)} tasks can never run: {said}{more}"

    def _why_stuck(self, running: _Running) -> str:
        name, pool = running.task.name, running.waits_for
        if pool is None:
            names = ", ".join(repr(n) for n in running.task.after if n not in self.finished)
            return f"{name!r} waits for the end of {names}"
        amount = next(amount for one, amount, _ in pool.waiting if one is running)
        return f"{name!r} waits for {amount:g} of {pool.name!r}, which has {pool.free:g} left"


def _share(flows: list[_Flow], now: float) -> None:
    """Shares fair resources: all flows get faster together, until a resource is used up or a flow
    cannot be faster; the others go on (max-min fairness by progressive filling)."""
    left = {p: p.resource.capacity * p.resource.rate for flow in flows for p in flow.needs}
    rest = flows
    while rest:
        wanted = dict.fromkeys(left, 0.0)
        for flow in rest:
            for pool, amount in flow.needs.items():
                wanted[pool] += amount
        levels = [min(f.most, *(left[p] / wanted[p] for p in f.needs)) for f in rest]
        level = min(levels)
        full = [one <= level * (1 + ROUNDING) for one in levels]
        for flow, is_full in zip(rest, full, strict=True):
            if is_full:
                flow.speed = level
                flow.ends = now + max(flow.left, 0.0) / level
                for pool, amount in flow.needs.items():
                    left[pool] = max(left[pool] - level * amount, 0.0)
        rest = [flow for flow, is_full in zip(rest, full, strict=True) if not is_full]


def _check(resources: list[Resource], tasks: list[Task]) -> None:
    """Raises a `PlanError` for arguments that do not fit together."""
    names, known = {task.name for task in tasks}, {resource.name for resource in resources}
    if len(names) < len(tasks) or len(known) < len(resources):
        raise PlanError("each task and each resource needs a name of its own")
    for resource in resources:
        if not (resource.capacity > 0 and 0 < resource.rate < math.inf and resource.latency >= 0):
            raise PlanError(f"{resource} needs a capacity and a finite rate above 0")
    batching = {resource.name for resource in resources if resource.batch > 1}
    for task in tasks:
        amounts = [(name, amount) for use in task.uses for name, amount in use.items()]
        amounts += [(hold.resource, hold.amount) for hold in task.holds]
        for name, amount in amounts:
            if name not in known or not 0 <= amount < math.inf:
                raise PlanError(
                    f"{task.name!r} needs {amount!r} of {name!r}, which is not possible"
                )
        others = [*task.after, *(hold.until for hold in task.holds if hold.until is not None)]
        for name in others:
            if name not in names:
                raise PlanError(f"{task.name!r} names the task {name!r}, which is not among them")
        if any(len(use) > 1 and batching & use.keys() for use in task.uses):
            raise PlanError(f"{task.name!r}: a use that is served in batches needs one resource")
