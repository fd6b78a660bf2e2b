"""Topologies are data: read strictly, written and read again as they were."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import silva as sv
from silva.cost.simulate import Task, simulate
from silva.fabric.files import parse, presets
from silva.fabric.measure import fit, tournament
from silva.fabric.routes import Routes
from silva.fabric.topology import Capacity, Collective, Device, Link, Topology

NAMES = st.text("abc-/ é", min_size=1, max_size=6)
AMOUNTS = st.floats(1e-9, 1e15)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    devices = tuple(
        Device(
            name,
            draw(NAMES),
            draw(st.sampled_from(["", "Ohio", "no", "1.5"])),
            draw(st.sampled_from(["cpu", "A100", "null"])),
            draw(st.none() | st.integers(1, 10**12)),
            draw(st.dictionaries(st.sampled_from(["float32", "bfloat16"]), AMOUNTS)),
        )
        for name in names
    )
    capacities = tuple(Capacity(f"nic{i}", draw(AMOUNTS)) for i in range(draw(st.integers(0, 2))))
    ends = st.sampled_from(names)
    pairs = draw(st.lists(st.tuples(ends, ends), max_size=6, unique=True))
    through = tuple(one.name for one in capacities)
    links = tuple(
        Link(a, b, draw(st.just(0.0) | AMOUNTS), draw(AMOUNTS), through) for a, b in pairs
    )
    collectives = tuple(Collective("all_reduce", n, draw(AMOUNTS), draw(AMOUNTS)) for n in (2, 4))
    return Topology(devices, links, capacities, collectives, draw(NAMES))


@given(topologies())
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, made: Topology
) -> None:
    folder = tmp_path_factory.mktemp("topologies")
    for name in ("t.yaml", "t.json"):
        assert Topology.load(made.save(folder / name)) == made


TEXT = """\
source: by hand
devices:
  - {name: gpu, count: 2, host: a, kind: A100, memory: 80 GB, flops: {bfloat16: 3.12e14}}
  - {name: far, site: Ohio}
capacities:
  - {name: nic, bandwidth: 25 Gbit/s}
links:
  - {between: [a, a], latency: 2 us, bandwidth: 300 GB/s}
  - {from: gpu0, to: far, latency: 11 ms, bandwidth: 1.12 Gbit/s, through: [nic]}
"""


def test_units_counts_and_both_directions() -> None:
    made = parse(TEXT, "t.yaml")
    assert [device.name for device in made.devices] == ["gpu0", "gpu1", "far"]
    assert made.device("gpu1").memory == 80_000_000_000
    assert made.device("far").host == "far"
    assert made.link("gpu1", "gpu0") == Link("a", "a", 2e-6, 3e11)
    assert made.link("gpu0", "far").bandwidth == 1.4e8
    with pytest.raises(sv.PlanError, match="no link goes from 'far' to 'gpu0'"):
        made.link("far", "gpu0")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("devices: []", "at least one device"),
        ("devices:\n  - {nam: a}", "line 2: 'nam' is not known here"),
        ("devices:\n  - {host: a}", "line 2: name is missing"),
        ("devices:\n  - {name: a}\n  - {name: a}", "two of device 'a'"),
        ("devices:\n  - name: a\n    memory: 80 GX", "line 3: '80 GX' is no number"),
        ("devices:\n  - {name: a, memory: -1}", "above 0"),
        ("devices:\n  - {name: a, count: 0}", "from 1 to"),
        ("devices:\n  - {name: a, count: 9999999999}", "from 1 to"),
        (
            "devices: [{name: a}]\nlinks:\n  - {from: a, latency: 1, bandwidth: 1}",
            "line 3: a link has",
        ),
        (
            "devices: [{name: a}]\nlinks:\n  - {from: a, to: b, bandwidth: 1}",
            "line 3: latency is missing",
        ),
        (
            "devices: [{name: a}]\nlinks: [{from: a, to: a, latency: .nan, bandwidth: 1}]",
            "no number",
        ),
        ("devices: [{name: a}]\ndevices: []", "line 2: 'devices' stands here twice"),
        (
            "devices: [{name: a}]\n"
            "links: [{from: a, to: a, latency: 1, bandwidth: 1, through: [x]}]",
            "not among",
        ),
        ("devices:\n - {name: !!python/object/apply:os.system [echo]}", "line 2"),
        ("devices: [", "line 1"),
        ("{", "line"),
        ("- a", "line 1: there should be"),
        ("devices: &a [*a]", "line"),
        ("[" * 3000, ""),
    ],
)
def test_wrong_files_are_refused_with_their_line(text: str, said: str) -> None:
    with pytest.raises(sv.PlanError, match=said) as error:
        parse(text, "t.yaml")
    assert "t.yaml" in str(error.value)


@given(st.text(max_size=60) | st.binary(max_size=40).map(lambda b: b.decode("latin-1")))
def test_no_text_is_more_than_refused(text: str) -> None:
    with contextlib.suppress(sv.PlanError):
        parse(text, "t.yaml")


def test_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(sv.PlanError, match="cannot read"):
        Topology.load(tmp_path / "none.yaml")
    (tmp_path / "t.json").write_bytes(b"\xff\xfe")
    with pytest.raises(sv.PlanError, match="is no text"):
        Topology.load(tmp_path / "t.json")


@pytest.mark.parametrize("name", presets())
def test_presets_have_a_link_for_each_pair(name: str) -> None:
    made = Topology.preset(name)
    assert made.source
    assert len(made) in (8, 64)
    for a in made.devices:
        assert made.link(made.devices[0].name, a.name) if a.name != made.devices[0].name else True
    assert "Bandwidth" in made.explain()


def test_presets_of_regions_are_those_of_the_paper(request: pytest.FixtureRequest) -> None:
    made = Topology.preset("dtfm/worldwide")
    link = made.link("oregon-0", "tokyo-7")
    assert (link.latency, link.bandwidth) == (0.096, pytest.approx(0.523e9 / 8))
    assert made.link("oregon-0", "oregon-1").bandwidth == 2.5e8


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    for name in ("t.png", "t.svg"):
        Topology.preset("dgx-1v").plot(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000


def test_messages_wait_for_their_link_and_share_a_card() -> None:
    hosts = tuple(Device(name, name) for name in "abc")
    links = tuple(Link("a", to, 0.0, 1e9, ("nic",)) for to in "bc")
    routes = Routes(Topology(hosts, links, (Capacity("nic", 1e9),)))
    one = [Task("b", [routes.send("a", "b", 1e9)])]
    assert simulate(routes.resources, one).makespan == pytest.approx(1.0)
    both = [*one, Task("c", [routes.send("a", "c", 1e9)])]
    assert simulate(routes.resources, both).makespan == pytest.approx(2.0)
    same = [*one, Task("again", [routes.send("a", "b", 1e9)])]
    assert simulate(routes.resources, same).makespan == pytest.approx(2.0)


def test_a_plan_that_does_not_fit_into_memory_is_found() -> None:
    routes = Routes(Topology((Device("a", "a", memory=10),)))
    holds = [routes.hold("a", 6, until="end")]
    tasks = [
        Task("x", holds=holds),
        Task("y", holds=[routes.hold("a", 6)]),
        Task("end", after=["y"]),
    ]
    with pytest.raises(sv.PlanError, match="'y' waits for 6 of 'memory of a', which has 4 left"):
        simulate(routes.resources, tasks)


@given(st.integers(1, 9))
def test_all_ranks_meet_all_others_once(ranks: int) -> None:
    met = [(a, b) for one in tournament(ranks) for a, b in enumerate(one) if b is not None]
    assert sorted(met) == [(a, b) for a in range(ranks) for b in range(ranks) if a != b]


@given(st.floats(0, 1e-2), st.floats(1e3, 1e12))
def test_a_line_is_found_again(latency: float, bandwidth: float) -> None:
    sizes = [4**n for n in range(6, 11)]
    found = fit(sizes, [latency + n / bandwidth for n in sizes])
    assert found[0] == pytest.approx(latency, abs=1e-8, rel=1e-4)


def test_here_is_measured_and_can_be_saved(tmp_path: Path) -> None:
    made = Topology.here(2)
    assert len(made) == 2
    assert made.devices[0].flops["float32"] > 1e8
    assert made.link("cpu0", "cpu1").bandwidth > 1e6
    assert Topology.load(made.save(tmp_path / "here.json")) == made
    assert json.loads((tmp_path / "here.json").read_text())["devices"]
