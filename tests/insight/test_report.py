"""The report: one file, complete, and safe to open whatever the rows say."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import silva as sv
from silva.facts.loop import LoopFacts
from silva.facts.text import verdict


def broken(x):
    if x == 3:
        raise ValueError("<script>alert(1)</script>")
    return x


class Balanced(HTMLParser):
    """Checks that every tag is closed in order."""

    EMPTY = frozenset({"meta", "line"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def report(loader, folder: Path) -> str:
    path = loader.report(folder / "report.html")
    assert path == folder / "report.html"
    return path.read_text(encoding="utf-8")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_a_report_on_a_full_disk_is_an_error_that_says_so() -> None:
    with (
        sv.from_columns({"x": range(3)}).loader(workers=0) as loader,
        pytest.raises(sv.FolderError, match=r"disk is full.*report"),
    ):
        loader.report("/dev/full")


def test_a_report_is_one_sound_file_that_loads_nothing(tmp_path, capfd) -> None:
    rows = sv.from_columns({"x": range(60)}).derive(y=broken, reads="x").batch(4)
    loader = rows.loader(workers=0, progress=True, on_error=sv.Skip())
    list(loader)
    html = report(loader, tmp_path)
    page = Balanced()
    page.feed(html)
    assert page.open == []
    assert not re.search(r"(src|href)=|url\(|@import|https?://", html)
    assert "<script" not in html
    text = " ".join(page.texts)
    for expected in (
        "The trainer waited",
        "As written",
        "As run",
        "Failures",
        "ValueError",
        "State",
    ):
        assert expected in text


def test_a_report_begins_with_how_long_the_trainer_waited(tmp_path) -> None:
    loader = sv.from_columns({"x": range(8)}).batch(4).loader(workers=0)
    assert "Nothing has run yet." in report(loader, tmp_path)
    list(loader)
    html = report(loader, tmp_path)
    assert re.search(r"The trainer waited [\d.<> ]+ ?% of the time", html)
    assert "rows per second" in html
    assert "<svg" not in html  # only progress=True samples the loop over time


@pytest.mark.parametrize(
    ("waited", "said"), [(0.1, "1 % of the time: the pipeline keeps up"), (9.0, "90 % of the time")]
)
def test_the_headline_does_not_depend_on_the_progress_line(waited, said) -> None:
    with sv.from_columns({"x": range(8)}).derive(y=abs, reads="x").batch(4).loader() as loader:
        list(loader)
        facts = loader.facts()
    assert facts.consumer is not None
    silent = replace(facts, consumer=replace(facts.consumer, seconds=10.0, waited=waited))
    watched = replace(facts, loop=LoopFacts(batches=2, rows=8, waited=waited, seconds=10.0))
    assert not silent.loop.seconds
    assert said in verdict(silent)
    assert verdict(silent) == verdict(watched)


def test_a_report_in_the_middle_of_an_epoch_shows_where_it_stands(tmp_path) -> None:
    loader = sv.from_columns({"x": range(8)}).batch(2).loader(workers=0)
    batches = iter(loader)
    next(batches)
    assert "epoch 0, step 1" in report(loader, tmp_path)
    assert len(list(batches)) == 3


def test_speed_over_time_is_drawn_once_there_are_samples(tmp_path) -> None:
    from silva.facts.loop import Interval

    loader = sv.from_columns({"x": range(8)}).batch(2).loader(workers=0)
    list(loader)
    loader._clock.samples += [Interval(i, 1.0, 100 * i, 0.1) for i in range(5)]
    loader._clock.seconds = 5.0
    html = report(loader, tmp_path)
    assert html.count("<svg") == 2
    assert "<polyline" in html


def test_a_pipeline_in_a_notebook_shows_its_plan_and_runs_nothing() -> None:
    ran = []
    rows = (
        sv.from_columns({"x": range(3)}).derive(y=lambda x: ran.append(x)).filter(sv.col("x") < 2)
    )
    html = rows._repr_html_()
    assert "x &lt; 2" in html
    assert "x: int64" in html
    assert not ran
