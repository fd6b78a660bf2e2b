"""What-if: the right step is made faster, and the answer says how sure it is."""

from __future__ import annotations

import re

import pytest
from busy import spin

import silva as sv
from silva.facts.formatting import percent, rate
from silva.facts.names import known_names


@pytest.fixture(scope="module")
def loader():
    rows = sv.from_columns({"x": range(400)}).derive(slow=spin(0.8), quick=spin(0.1))
    rows = rows.derive(n=sv.num("x").clip(0, 50).log1p()).batch(8)
    loader = rows.loader(backend="inline")
    list(loader)
    return loader


def test_half_of_the_slow_step_is_nearly_twice_as_fast(loader) -> None:
    slow, quick = loader.what_if(slow=0.5), loader.what_if(quick=0.5)
    assert 1.5 < slow.gain < 2.0  # 0.9 / 0.5
    assert 1.0 < quick.gain < 1.2  # 0.9 / 0.85
    assert slow.low < slow.expected < slow.high
    assert slow.now == quick.now
    assert loader.what_if().gain == pytest.approx(1.0)


def test_a_factor_may_be_more_than_one_or_nothing(loader) -> None:
    assert loader.what_if(slow=2).gain < 0.7
    assert loader.what_if(slow=0, quick=0).gain > 4
    assert loader.what_if(**{"slow#0": 0.5}).gain == pytest.approx(loader.what_if(slow=0.5).gain)
    assert loader.what_if(clip=0.5).gain >= 1.0
    assert loader.what_if(read=0.5).gain >= 1.0


def test_a_step_of_several_pipelines_is_one_step() -> None:
    part = sv.from_columns({"x": range(40)}).derive(slow=spin(0.2))
    loader = sv.concat([part, part]).batch(8).loader(backend="inline")
    list(loader)
    asked = loader.what_if(slow=0.5)
    assert asked.gain == pytest.approx(loader.what_if(**{"slow#0": 0.5}).gain)


def test_workers_cores_backend_and_memory(loader) -> None:
    processes = loader.what_if(backend="processes", workers=4, cores=4)
    assert processes.gain > 2.5
    assert "processes" in processes.limit or "cores" in processes.limit
    one_core = loader.what_if(backend="processes", workers=4, cores=1)
    # on a crowded machine a step waits longer than it works, and so do four workers on one core
    assert one_core.limit in ("the cores, stage 1", "the processes, stage 1")
    assert one_core.expected <= processes.expected
    threads = loader.what_if(backend="threads", workers=4, cores=4)
    assert threads.limit.startswith("the GIL")  # it was not measured, and is taken to be held
    crowded = loader.what_if(backend="processes", workers=64, cores=64, memory="1KiB")
    assert crowded.expected < loader.what_if(backend="processes", workers=64, cores=64).expected


def test_any_number_of_workers_can_be_asked_for(loader) -> None:
    found = [loader.what_if(backend="processes", workers=n, cores=2) for n in (64, 1000, 10**6)]
    assert found[0].expected <= found[1].expected <= found[2].expected
    assert found[2].limit == "the cores, stage 1"
    assert len(found[2].trace.finished) < 1000


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"slwo": 0.5}, "did you mean 'slow'"),
        ({"zzz": 0.5}, "the names are .*'clip'.*'slow'"),
        ({"slow": "fast"}, "a factor for its time"),
        ({"slow": -1}, "a factor for its time"),
        ({"slow": float("nan")}, "a factor for its time"),
        ({"slow": float("inf")}, "a factor for its time"),
        ({"slow": 10**400}, "a factor for its time"),
        ({"workers": 1.5}, "workers= must be a whole number"),
        ({"cores": 0}, "cores= must be a whole number of at least 1"),
        ({"backend": "gpu"}, "backend must be one of"),
        ({"memory": "much"}, "not an amount of memory"),
    ],
)
def test_what_cannot_be_asked(loader, asked, said) -> None:
    with pytest.raises(sv.PlanError, match=said):
        loader.what_if(**asked)


def test_a_name_that_could_be_two_things_is_refused() -> None:
    rows = sv.from_columns({"x": range(64)}).derive(clip=spin(0.01)).derive(clip=spin(0.02))
    rows = rows.derive(z=sv.num("clip").clip(0, 5).log1p(), w=abs, reads="x").batch(8)
    loader = rows.loader(backend="inline")
    list(loader)
    with pytest.raises(sv.PlanError, match=r"clip#1, num.clip in z#0"):
        loader.what_if(clip=0.5)
    assert loader.what_if(**{"clip#1": 0.5}).gain > 1


def test_text_data_and_page(loader) -> None:
    found = loader.what_if(slow=0.5)
    lines = str(found).splitlines()
    assert lines[0] == "what if slow=0.5"
    assert lines[1].startswith("  now        ")
    assert "between " in lines[3]
    assert any("slow#0: " in line and "of stage 1, 0.5 × its time" in line for line in lines)
    assert repr(found) == str(found)
    data = found.to_dict()
    assert set(data) == {
        "asked", "now", "now_limit", "now_share", "expected", "low", "high", "limit", "error",
        "notes", "gain",
    }  # fmt: skip
    assert "what if slow=0.5" in found._repr_html_()


def test_explain_why_headroom_and_what_if_say_the_same_of_a_real_run() -> None:
    """One throughput, one limit with its share, and one gain of a step that is free."""
    rows = sv.from_columns({"x": range(1_000_000)}).derive(slow=spin(0.8), quick=spin(0.1))
    rows = rows.derive(n=sv.num("x").clip(0, 50).log1p()).batch(8)
    with rows.loader(backend="inline") as loader:
        headroom = loader.headroom(seconds=1.0)
        _agree(loader)
        found = loader.what_if()
        limit = f"limit: {found.now_limit}, in use {percent(found.now_share)} of the time"
        assert f"{rate(found.now)} now ({limit})" in " ".join(str(headroom).split())
        free = {step.label.partition(" ")[0]: step.gain for step in headroom.steps}
        for name in ("slow", "quick"):
            assert free[name] == pytest.approx(loader.what_if(**{name: 0}).gain)


def _agree(loader) -> None:
    found = loader.what_if()
    limit = f"{found.now_limit}, in use {percent(found.now_share)} of the time"
    for text in (loader.explain(analyze=True), loader.why("stage 1"), str(found)):
        assert f"{rate(found.now)} (limit: {limit})" in " ".join(str(text).split())
    text = str(loader.explain(analyze=True))
    titles = ["Plan as written\n", "Rules\n", "Plan as run\n", "Measured\n"]
    assert [text.count(title) for title in titles] == [1] * 4
    assert [text.count(f"derive {name} = ") for name in ("slow", "quick", "n")] == [1] * 3
    assert [text.count(f"% {name} = ") for name in ("slow", "quick", "n")] == [1] * 3


def test_what_if_needs_a_measurement() -> None:
    rows = sv.from_columns({"x": range(64)}).derive(y=spin(0.1)).batch(8)
    with pytest.raises(sv.PlanError, match="nothing was measured yet"):
        rows.loader(backend="inline").what_if(y=0.5)
    assert rows.what_if(seconds=0.5, y=0.5).gain > 1


spinning = spin(0.2)  # so that the stage takes longer than the loop


def thinks(x):
    return spinning(x) + 1


def test_why_and_what_if_know_the_same_names() -> None:
    rows = sv.from_columns({"x": range(200), "spare": range(200)})
    rows = rows.derive(y=thinks, unread=lambda x: -x, z=sv.num("x").clip(0, 9).log1p())
    with rows.select("y", "z").batch(8).loader(backend="inline") as loader:
        list(loader)
        for name in known_names(loader.facts()):
            assert name in str(loader.why(name)) or name.startswith("stage")
            try:
                assert loader.what_if(**{name: 0.5}).gain >= 0.99
            except sv.PlanError as error:
                assert re.search("nothing was measured of|could be any of", str(error))  # noqa: PT017
        assert loader.what_if(thinks=0.5).gain == loader.what_if(y=0.5).gain
        assert loader.what_if(**{"stage 1": 0.5}).gain > 1.2
        with pytest.raises(sv.PlanError, match="nothing was measured of 'unread'"):
            loader.what_if(unread=0.5)
        said = []
        for ask in (loader.why, lambda name: loader.what_if(**{name: 0.5})):
            with pytest.raises(sv.PlanError) as caught:
                ask("thniks")
            said.append(str(caught.value))
    assert said[0] == said[1]
    assert "did you mean 'thinks'" in said[0]
