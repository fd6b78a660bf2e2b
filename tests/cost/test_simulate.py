"""The simulator: its laws on random tasks, and closed forms of queueing."""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silva.cost.simulate import Hold, Resource, Task, simulate
from silva.cost.trace import Span, Trace, save_traces
from silva.errors import PlanError

AMOUNTS = st.integers(1, 50).map(lambda n: n / 10)


@st.composite
def programs(draw):
    """Resources, and tasks on them with dependencies on earlier tasks."""
    resources = [
        Resource(
            f"r{i}",
            capacity=draw(st.integers(1, 3)),
            rate=draw(st.sampled_from([0.5, 1.0, 4.0])),
            latency=draw(st.sampled_from([0.0, 0.25])),
            policy=draw(st.sampled_from(["fifo", "fair"])),
        )
        for i in range(draw(st.integers(1, 3)))
    ]
    names = [resource.name for resource in resources]
    use = st.dictionaries(st.sampled_from(names), AMOUNTS, min_size=1, max_size=2)
    tasks: list[Task] = []
    for i in range(draw(st.integers(1, 12))):
        before = st.lists(st.sampled_from([t.name for t in tasks]), max_size=2) if tasks else None
        tasks.append(
            Task(
                f"t{i}",
                draw(st.lists(use, max_size=3)),
                after=draw(before) if before is not None else [],
                at=draw(st.sampled_from([0.0, 0.0, 1.5])),
            )
        )
    return resources, _without_lock_cycles(tasks)


def _without_lock_cycles(tasks):
    """Resources are taken in one order by all tasks, so that no two wait for each other."""
    return [
        Task(t.name, [dict(sorted(use.items())) for use in t.uses], t.after, t.at) for t in tasks
    ]


def _alone(task: Task, by_name: dict[str, Resource]) -> float:
    """Seconds of a task that nobody hinders."""
    return sum(
        sum(by_name[name].latency for name in use)
        + max(amount / by_name[name].rate for name, amount in use.items())
        for use in task.uses
    )


@given(programs())
def test_all_work_is_done_once_and_nothing_is_faster_than_its_resources(program) -> None:
    resources, tasks = program
    by_name = {resource.name: resource for resource in resources}
    trace = simulate(resources, tasks)
    assert set(trace.finished) == {task.name for task in tasks}
    for resource in resources:
        given_work = math.fsum(use.get(resource.name, 0.0) for t in tasks for use in t.uses)
        assert trace.work(resource.name) == pytest.approx(given_work)
        least = given_work / (resource.capacity * resource.rate)
        assert trace.makespan >= least * (1 - 1e-9)
        assert trace.busy(resource.name) >= least * (1 - 1e-9)
    ends: dict[str, float] = {}
    for task in tasks:  # the critical path
        start = max([task.at, *(ends[name] for name in task.after)])
        ends[task.name] = start + _alone(task, by_name)
        assert trace.finished[task.name] >= ends[task.name] * (1 - 1e-9)


@given(programs())
def test_the_same_arguments_give_the_same_trace(program) -> None:
    resources, tasks = program
    assert simulate(resources, tasks) == simulate(resources, tasks)


@given(programs())
def test_a_fifo_resource_never_serves_more_than_its_capacity(program) -> None:
    resources, tasks = program
    trace = simulate(resources, tasks)
    for resource in resources:
        spans = [s for s in trace.spans if s.resource == resource.name]
        as_held = Trace(tuple(s._replace(amount=1.0, held=True) for s in spans))
        if resource.policy == "fifo":
            # a span ends where the next one starts, up to rounding
            shorter = [s._replace(end=s.end - 1e-9) for s in as_held.spans]
            assert Trace(tuple(shorter)).peak(resource.name) <= resource.capacity


@given(st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=1, max_size=20))
def test_one_queue_serves_in_the_order_of_arrival(jobs) -> None:
    tasks = [Task(f"t{i}", [{"server": work}], at=at) for i, (at, work) in enumerate(jobs)]
    trace = simulate([Resource("server")], tasks)
    free = 0.0  # Lindley's recursion
    for i in sorted(range(len(jobs)), key=lambda i: jobs[i][0]):
        free = max(free, jobs[i][0]) + jobs[i][1]
        assert trace.finished[f"t{i}"] == pytest.approx(free)


@given(st.lists(AMOUNTS, min_size=1, max_size=5), st.integers(1, 10), st.booleans())
def test_a_pipeline_takes_the_sum_and_then_the_slowest_stage_for_each_item(
    stages, items, bounded
) -> None:
    """Also where an item cannot leave its stage before the next one is free, which bounds the items
    on any two neighbours to two."""
    resources = [Resource(f"stage {s}") for s in range(len(stages))]
    resources += [Resource(f"pair {s}", 2) for s in range(len(stages))]
    tasks = []
    for i in range(items):
        for s, seconds in enumerate(stages):
            place = [Hold(f"pair {s}", until=f"{i} on {s + 1}")]
            last = s == len(stages) - 1
            tasks.append(
                Task(
                    f"{i} on {s}",
                    [{f"stage {s}": seconds}],
                    after=[f"{i} on {s - 1}"] if s else [],
                    holds=place if bounded and not last else (),
                )
            )
    trace = simulate(resources, tasks)
    assert trace.makespan == pytest.approx(sum(stages) + (items - 1) * max(stages))


@given(st.lists(AMOUNTS, min_size=1, max_size=12), st.integers(1, 4))
def test_fair_shares_are_processor_sharing(works, cores) -> None:
    tasks = [Task(f"t{i}", [{"cores": work}]) for i, work in enumerate(works)]
    trace = simulate([Resource("cores", cores, policy="fair")], tasks)
    now, done = 0.0, 0.0
    for rank, i in enumerate(sorted(range(len(works)), key=lambda i: works[i])):
        speed = min(1.0, cores / (len(works) - rank))
        now += (works[i] - done) / speed
        done = works[i]
        assert trace.finished[f"t{i}"] == pytest.approx(now)


def test_a_transfer_takes_latency_and_bytes_by_rate() -> None:
    for policy in ("fifo", "fair"):
        link = Resource("link", rate=1e9, latency=1e-3, policy=policy)
        trace = simulate([link], [Task("send", [{"link": 5e6}])])
        assert trace.makespan == pytest.approx(1e-3 + 5e-3)


def test_links_share_a_capacity_by_max_min_fairness() -> None:
    """A flow that its own link limits leaves the rest to the other."""
    resources = [
        Resource("slow", rate=1.0, policy="fair"),
        Resource("fast", rate=10.0, policy="fair"),
        Resource("uplink", rate=5.0, policy="fair"),
    ]
    tasks = [
        Task("a", [{"slow": 10.0, "uplink": 10.0}]),
        Task("b", [{"fast": 40.0, "uplink": 40.0}]),
    ]
    trace = simulate(resources, tasks)
    assert trace.finished == pytest.approx({"a": 10.0, "b": 10.0})


def test_threads_take_turns_for_the_gil_and_not_for_the_rest() -> None:
    resources = [Resource("cores", 2, policy="fair"), Resource("GIL", policy="fair")]

    def run(threads: int, locked: float) -> float:
        use = {"cores": 1.0, "GIL": locked}
        return simulate(resources, [Task(f"t{i}", [use]) for i in range(threads)]).makespan

    assert run(2, 0.0) == pytest.approx(1.0)
    assert run(2, 1.0) == pytest.approx(2.0)
    assert run(2, 0.75) == pytest.approx(1.5)
    assert run(8, 0.0) == pytest.approx(4.0)  # eight workers have no more cores than two


def test_a_batch_costs_its_latency_once() -> None:
    model = Resource("model", latency=1.0, batch=4)
    tasks = [Task(f"request {i}", [{"model": 0.5}]) for i in range(6)]
    trace = simulate([model], tasks)
    assert [trace.finished[f"request {i}"] for i in range(6)] == [3.0] * 4 + [5.0] * 2


def test_a_batch_that_is_not_full_lingers() -> None:
    model = Resource("model", latency=1.0, batch=2, linger=0.5)
    tasks = [Task("a", [{"model": 0.0}]), Task("b", [{"model": 0.0}], at=0.25)]
    assert simulate([model], tasks).finished == {"a": 1.25, "b": 1.25}
    assert simulate([model], tasks[:1]).finished == {"a": 1.5}


def test_memory_is_held_until_another_task_ends() -> None:
    """Two forward passes fit into memory; the third waits for the first backward pass."""
    device, memory = Resource("device"), Resource("memory", 2e9)
    tasks = [
        Task(f"F{i}", [{"device": 1.0}], holds=[Hold("memory", 1e9, until=f"B{i}")])
        for i in range(3)
    ]
    tasks += [Task(f"B{i}", [{"device": 2.0}], after=[f"F{i}"]) for i in range(3)]
    trace = simulate([device, memory], tasks)
    assert trace.peak("memory") == 2e9
    order = sorted(trace.finished, key=lambda name: trace.finished[name])
    assert order == ["F0", "F1", "B0", "B1", "F2", "B2"]
    assert simulate([device, Resource("memory", math.inf)], tasks).peak("memory") == 3e9


def test_a_deadlock_is_an_error_that_names_its_tasks() -> None:
    circle = [Task("a", after=["b"]), Task("b", after=["a"]), Task("c")]
    with pytest.raises(PlanError, match="2 of 3 tasks can never run: 'a' waits for the end of 'b'"):
        simulate([], circle)
    with pytest.raises(PlanError, match="'big' waits for 2 of 'queue', which has 1 left"):
        simulate([Resource("queue")], [Task("big", holds=[Hold("queue", 2)])])


@pytest.mark.parametrize(
    ("resources", "tasks", "said"),
    [
        ([], [Task("a"), Task("a")], "a name of its own"),
        ([], [Task("a", [{"disk": 1.0}])], "'a' needs 1.0 of 'disk'"),
        ([Resource("disk")], [Task("a", [{"disk": -1.0}])], "'a' needs -1.0 of 'disk'"),
        ([], [Task("a", after=["b"])], "names the task 'b'"),
        ([Resource("disk", rate=0.0)], [], "a finite rate above 0"),
        (
            [Resource("m", batch=2), Resource("c")],
            [Task("a", [{"m": 1.0, "c": 1.0}])],
            "in batches needs one resource",
        ),
    ],
)
def test_arguments_that_do_not_fit_together_are_refused(resources, tasks, said) -> None:
    with pytest.raises(PlanError, match=said):
        simulate(resources, tasks)


def test_thousands_of_tasks_take_no_longer_than_their_number() -> None:
    """Each event touches the flows that share something, and not all tasks that wait."""
    resources = [Resource("cores", 4), Resource("link", policy="fair")]
    tasks = [Task(f"t{i}", [{"cores": 1.0}, {"link": 0.1}]) for i in range(5000)]
    assert simulate(resources, tasks).makespan == pytest.approx(1250, rel=0.01)


def test_a_saved_trace_is_valid_for_perfetto(tmp_path) -> None:
    simulated = simulate(
        [Resource("cores", 2), Resource("memory", 4)],
        [Task(f"t{i}", [{"cores": 0.5}], holds=[Hold("memory", 2)]) for i in range(4)],
    )
    real = Trace((Span("rows 8", "stage 1", 0.25, 0.5, 8),))
    path = save_traces(tmp_path / "trace.json", {"simulated": simulated, "real": real})
    events = json.loads(path.read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"X", "M", "C"}
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {1: "simulated", 2: "real"}
    threads = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    by_row = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert (event["pid"], event["tid"]) in threads
            by_row[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert len(by_row) == 3  # two cores, and the stage
    for spans in by_row.values():  # no two overlap on a row
        ordered = sorted(spans)
        assert all(a[1] <= b[0] + 1e-6 for a, b in itertools.pairwise(ordered))
    assert by_row[2, 1] == [(0.25e6, 0.5e6)]
    held = [e["args"]["held"] for e in events if e["ph"] == "C"]
    assert max(held) == 4
    assert held[-1] == 0
