"""The benchmarks' own promises: what is compared is the same work, and no peer stops a run."""

from __future__ import annotations

import colorsys
import contextlib
import io
import json
import subprocess
import sys
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import (
    audio,
    chart,
    claims,
    data,
    environments,
    forecasts,
    harness,
    overhead,
    readme,
    recsys,
    ssd,
)
from benchmarks import hand_images as hand
from benchmarks.harness import fits, run_once, run_workload
from benchmarks.page import page
from benchmarks.planner import pipelines
from benchmarks.report import as_json
from benchmarks.store import log
from benchmarks.table import show
from benchmarks.workload import Target
from benchmarks.workloads import WORKLOADS

from silva.testing import stream

seeds = st.integers(0, 2**32 - 1)


@pytest.fixture
def no_data(tmp_path, monkeypatch):
    """No photos, speech or text anywhere: all must be made."""
    monkeypatch.delenv("SILVA_BENCH_DATA", raising=False)
    monkeypatch.setattr(data, "_BESIDE", tmp_path / "nowhere")


def random_photo(seed: int, height: int = 13, width: int = 17) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


# Workloads as data.


@pytest.mark.parametrize("name", WORKLOADS)
def test_targets_speak_of_contestants_and_environments_have_files(name):
    workload = WORKLOADS[name]
    names = [c.name for c in workload.contestants]
    assert len(set(names)) == len(names)
    for target in workload.targets:
        others = target.of if isinstance(target.of, tuple) else (target.of,)
        assert {target.who, target.minus, *others} <= {*names, None}
    used = {c.environment for c in workload.contestants} - {None}
    assert used <= set(environments.names())


def test_a_child_imports_nothing_that_only_silva_has():
    code = (
        "import sys, benchmarks.workloads\n"
        "others = {'silva', 'cv2', 'simplejpeg', 'torch', 'pyarrow', 'rich', 'pandas', 'scipy'}\n"
        "print(sorted(others & set(sys.modules)))"
    )
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_target_keeps_those_who_take_part():
    target = Target("a", at_least=2, of=("b", "c"))
    assert target.among({"a", "c"}) == replace(target, of=("c",))
    assert target.among({"a"}) is None
    assert Target("a", at_least=2, of="b").among({"a", "c"}) is None
    assert Target("a", at_most=1).among({"a"}) == Target("a", at_most=1)


@pytest.mark.parametrize(
    ("form", "good"),
    [
        (["float32", [32, 256, 70]], True),
        (["float64", [32, 256, 70]], False),
        (["float32", [32, 255, 70]], False),
        (["float32", [32, 256]], False),
    ],
)
def test_the_form_of_a_batch_is_checked(form, good):
    assert fits(form, audio.WORKLOAD) is good


# Environments.


def test_each_paragraph_of_a_file_is_one_installation(tmp_path, monkeypatch):
    monkeypatch.setattr(environments, "_FILES", tmp_path)
    (tmp_path / "mine.txt").write_text("# why\na==1\n\n# alone\n--no-deps\nb==2\n\n\nc==3\nd==4\n")
    assert environments._steps("mine") == [["a==1"], ["--no-deps", "b==2"], ["c==3", "d==4"]]
    assert environments.requirements("mine") == ["a==1", "b==2", "c==3", "d==4"]


def test_a_failed_installation_gives_its_reason():
    code = "import sys; print('hm'); sys.exit('ERROR: No matching distribution found for x')"
    with pytest.raises(environments.NotInstalled, match="No matching distribution"):
        environments._run([sys.executable, "-c", code])


def test_an_environment_is_used_only_if_it_was_made_from_this_file(tmp_path, monkeypatch):
    monkeypatch.setattr(environments, "_FILES", tmp_path)
    monkeypatch.setattr(environments, "_MADE", tmp_path / "made")
    (tmp_path / "mine.txt").write_text("a==1\n")
    with pytest.raises(environments.NotInstalled, match="makes it"):
        environments.python_of("mine")
    (tmp_path / "made" / "mine").mkdir(parents=True)
    note = tmp_path / "made" / "mine" / "note.txt"
    note.write_text(f"made {environments._fingerprint('mine')}")
    assert environments.python_of("mine").endswith("mine/bin/python")
    (tmp_path / "mine.txt").write_text("a==2\n")
    with pytest.raises(environments.NotInstalled, match="makes it"):
        environments.python_of("mine")
    note.write_text("ERROR: no space left; 0123")
    with pytest.raises(environments.NotInstalled, match="no space left"):
        environments.python_of("mine")


def test_a_peer_that_is_not_installed_is_shown_and_stops_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(environments, "_MADE", tmp_path)
    workload = overhead.WORKLOAD.only(lambda c: c.name in ("plain loop", "torchdata.nodes"))
    outcome = run_workload(workload, quick=True, rounds=1, say=lambda _: None)
    assert outcome.errors == []
    assert list(outcome.missing) == ["torchdata.nodes"]
    assert outcome.known("plain loop", "rows") == [90_000]
    console = Console(file=io.StringIO(), width=110)
    show(outcome, console, quick=True)
    assert "not installed" in console.file.getvalue()
    result = as_json([outcome], quick=True)
    text = page(result)
    assert "not installed" in text
    assert "plain loop (limit)" in text
    assert "http" not in text


def test_a_run_without_end_is_an_error():
    contestant = overhead.WORKLOAD.contestant("plain loop")
    with pytest.raises(RuntimeError, match="no end after"):
        run_once(overhead.WORKLOAD, contestant, {"rows": 10**12}, deadline=0.2)


def test_a_contestant_that_hangs_is_ended_with_its_daemons_and_not_tried_again(
    tmp_path, monkeypatch
):
    said: list[str] = []
    pids = tmp_path / "pids"
    code = (
        "import subprocess, sys, time\n"
        "args = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "daemon = subprocess.Popen(args, start_new_session=True)\n"
        f"open({str(pids)!r}, 'w').write(str(daemon.pid))\n"
        "time.sleep(600)\n"
    )
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}"\n')
    python.chmod(0o700)
    real = harness.python_of
    monkeypatch.setattr(harness, "python_of", lambda name: str(python) if name else real(name))
    monkeypatch.setattr(harness, "_QUICK_DEADLINE", 5.0)
    workload = overhead.WORKLOAD.only(lambda c: c.name in ("plain loop", "torchdata.nodes"))
    outcome = run_workload(workload, quick=True, rounds=2, say=said.append)
    assert outcome.errors == ["torchdata.nodes, round 1: no end after 5 s"]
    assert outcome.known("plain loop", "rows") == [90_000] * 2
    assert outcome.runs["torchdata.nodes"] == [None, None]
    assert sum("torchdata.nodes" in line for line in said) == 1
    with contextlib.suppress(psutil.NoSuchProcess):
        assert psutil.Process(int(pids.read_text())).status() == psutil.STATUS_ZOMBIE


# The same work: what is written by hand, beside a plain reference.


@given(seeds, st.floats(0, 2))
def test_brightness_contrast_and_colour_by_hand(seed, factor):
    """Within one level and a half of the formulas in float (gray and result are rounded)."""
    photo = random_photo(seed)
    exact = photo.astype(float)
    luminance = exact @ [0.299, 0.587, 0.114]
    wanted = {
        hand.brighter: exact * factor,
        hand.more_contrast: exact * factor + (1 - factor) * luminance.round().mean(),
        hand.more_colour: exact * factor + (1 - factor) * luminance.round()[..., None],
    }
    for function, values in wanted.items():
        found = function(photo, factor).astype(float)
        assert np.abs(found - values.clip(0, 255)).max() <= 1 + abs(1 - factor) + 1e-6


@settings(max_examples=20)
@given(seeds, st.floats(-0.2, 0.2))
def test_hue_by_hand(seed, shift):
    """OpenCV's hue has 180 levels, so colours may be off by a few of 256."""
    photo = random_photo(seed, 5, 5)
    shift = round(shift * 180) / 180
    found = hand.other_hue(photo, shift)
    for pixel, got in zip(photo.reshape(-1, 3) / 255, found.reshape(-1, 3) / 255, strict=True):
        hue, saturation, value = colorsys.rgb_to_hsv(*pixel)
        wanted = colorsys.hsv_to_rgb((hue + shift) % 1, saturation, value)
        assert np.abs(got - wanted).max() < 8 / 255


def test_normalising_by_table():
    table = hand.normal_table((0.5, 0.25, 0.0), (0.25, 0.5, 1.0))
    wanted = (np.arange(256)[:, None] / 255 - [0.5, 0.25, 0.0]) / [0.25, 0.5, 1.0]
    np.testing.assert_allclose(table[0], wanted, atol=1e-6)
    assert table.dtype == np.float32


@given(seeds)
def test_a_part_keeps_the_centre_of_a_box(seed):
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, 0.7, (int(rng.integers(1, 9)), 2))
    boxes = np.hstack([corner, corner + rng.uniform(0.1, 0.3, corner.shape)])
    boxes *= [500, 375, 500, 375]
    top, left, height, width = part = ssd.iou_crop(rng, 375, 500, boxes)
    assert top >= 0
    assert left >= 0
    assert top + height <= 375
    assert left + width <= 500
    inside = [
        left < (a + c) / 2 < left + width and top < (b + d) / 2 < top + height
        for a, b, c, d in boxes
    ]
    moved, kept = ssd.moved(boxes, part)
    assert kept.tolist() == inside
    assert kept.any()
    assert (moved >= 0).all()
    assert (moved <= ssd.SIZE + 1e-9).all()
    np.testing.assert_allclose(ssd.mirrored(ssd.mirrored(moved)), moved)


def splitmix(x: int) -> int:
    mask = 2**64 - 1
    z = (x + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return ((z >> 32) * recsys.BUCKETS) >> 32


@given(st.lists(st.lists(st.integers(0, 2**40), max_size=70), min_size=1, max_size=20))
def test_recommendation_rows_by_hand(histories):
    import pyarrow as pa

    prices = np.linspace(-5, 150, len(histories), dtype=np.float32)
    table = pa.table(
        {
            "history": pa.array(histories, pa.list_(pa.int64())),
            "price": prices,
            "label": np.zeros(len(histories), np.int8),
        }
    )
    found = recsys.features(table)
    values, offsets = found["history"]
    rows = [values[a:b].tolist() for a, b in pairwise(offsets)]
    assert rows == [[splitmix(x) for x in row[: recsys.LONGEST]] for row in histories]
    np.testing.assert_allclose(found["price"], np.log1p(prices.clip(0, 100)), rtol=1e-6)


@pytest.mark.rest  # librosa compiles for half a minute when it is first used
def test_speech_by_hand_is_librosa_s(tmp_path):
    """Within 1e-5 of the loudest value, masks left out."""
    for number in range(3):
        path = tmp_path / f"{number}.wav"
        data.sing(path, number)
        found = audio.ByHand(masked=False)(path.read_bytes(), np.random.default_rng(0))
        wanted = audio.Clip(masked=False)(str(path))
        assert found.shape == wanted.shape
        assert found.dtype == wanted.dtype
        assert np.abs(found - wanted).max() <= 1e-5 * wanted.max()


# Data.


def test_data_is_made_where_there_is_none(tmp_path, no_data):
    for name in ("photos", "speech"):
        (tmp_path / name).mkdir()
    assert "scikit-learn" in data.put_photos(tmp_path / "photos", 3)
    assert "made here" in data.put_speech(tmp_path / "speech", 3)
    assert "standard library" in data.put_text(tmp_path / "lines.txt", 50)
    assert len(list((tmp_path / "photos").glob("*.jpg"))) == 3
    assert len(list((tmp_path / "speech").glob("*.wav"))) == 3
    assert len((tmp_path / "lines.txt").read_text().splitlines()) == 50


def test_every_order_of_the_planners_pipelines_gives_the_same_rows(tmp_path, no_data):
    where = {"image": tmp_path / "photos", "audio": tmp_path / "speech"}
    for folder in where.values():
        folder.mkdir()
    data.put_photos(where["image"], 6)
    data.put_speech(where["audio"], 6)
    data.put_text(tmp_path / "lines.txt", 50)
    for space in pipelines.SPACES:
        given = where.get(space, 60 if space == "locked" else tmp_path / "lines.txt")
        made = [
            pipelines.ordered(space, str(given), o) for o in pipelines.orders(space, str(given))
        ]
        assert len({tuple(stream(p.loader(backend="inline"))) for p in made}) == 1


def test_given_data_is_used_and_repeated(tmp_path, no_data, monkeypatch):
    given, photos = tmp_path / "given", tmp_path / "photos"
    given.mkdir()
    photos.mkdir()
    (given / "a.jpg").write_bytes(b"first")
    (given / "b.JPEG").write_bytes(b"second")
    (given / "t.txt").write_text("one\n\ntwo\n")
    monkeypatch.setenv("SILVA_BENCH_DATA", str(given))
    assert "SILVA_BENCH_DATA" in data.put_photos(photos, 3)
    found = [path.read_bytes() for path in sorted(photos.iterdir())]
    assert found == [b"first", b"second", b"first"]
    data.put_text(tmp_path / "lines.txt", 3)
    assert (tmp_path / "lines.txt").read_text() == "one\ntwo\none\n"


# The store's log.


def test_the_stores_log_repeats_as_predicted():
    made = log.Log(rows=16_000, unchanged=0.9)
    rows = log.table(made)
    histories = rows.column("hist").to_pylist()
    distinct = 1 + sum(a != b for a, b in pairwise(histories))
    assert abs(made.rows / distinct / made.factor - 1) < 0.05
    assert rows.column("session").to_pylist() == sorted(rows.column("session").to_pylist())


def test_a_sliding_history_moves_on_by_one_item():
    histories = log.table(log.Log(rows=64, slides=True)).column("hist").to_pylist()
    moved = [b[:-1] == a[1:] for a, b in pairwise(histories)]
    assert [i + 1 for i, goes_on in enumerate(moved) if not goes_on] == [16, 32, 48]


# Claims.


def test_a_run_that_is_stopped_keeps_what_it_has_measured(tmp_path, monkeypatch):
    def finding(name, value):
        return claims.Finding(name, "", "", value, True)

    def stopped(sizes):
        yield finding("b", 2.0)
        raise KeyboardInterrupt

    made = {"first": lambda sizes: iter([finding("a", sizes)]), "second": stopped}
    target = tmp_path / "found.json"
    run = claims.Claims("x", "", made, 1.0, 0.0, ())
    monkeypatch.setattr(sys, "argv", ["x", "--json", str(target)])
    target.write_text(json.dumps({"findings": [asdict(finding(name, 0.0)) for name in "ac"]}))
    with pytest.raises(KeyboardInterrupt):
        run.main()
    found = json.loads(target.read_text())["findings"]
    assert {one["claim"]: one["value"] for one in found} == {"a": 1.0, "b": 2.0, "c": 0.0}


# What pages show.


def test_pages_show_the_last_results():
    results = json.loads(readme.RESULTS.read_text())
    assert readme.table(results) in (readme.ROOT / "docs" / "benchmarks.md").read_text()
    assert readme.CHART.read_text() == chart.draw(results)
    for name, shown_on in readme.CLAIMS.items():
        findings = json.loads(readme.RESULTS.with_name(f"{name}.json").read_text())
        assert readme.claims(findings) in (readme.ROOT / "docs" / shown_on).read_text()


def test_the_chart_shows_the_fastest_form_of_each_peer_and_always_dataloader():
    def contestant(name, *rates, limit=False):
        return {"name": name, "limit": limit, "runs": [{"rate": rate} for rate in rates]}

    contestants = [
        contestant("two threads by hand", 5.0, 9.0, 6.0, limit=True),
        contestant("silva auto", 8.0),
        contestant("DataLoader, 2 workers", 1.0),
        contestant("DataLoader, 0 workers", 2.0),
        *(contestant(f"peer {n}, threads", 3.0 + n) for n in range(6)),
        contestant("broken"),
    ]
    names = ["peer 5", "peer 4", "peer 3", "DataLoader"]
    drawn = [("silva", 8.0), ("by hand", 6.0), *zip(names, (8.0, 7.0, 6.0, 2.0), strict=True)]
    assert chart.rates({"contestants": contestants}) == drawn


def test_forecasts_draw_every_kind_by_the_seed_alone():
    cases = forecasts.draw(7)
    assert cases == forecasts.draw(7) != forecasts.draw(8)
    assert {case.kind for case in cases} == set(forecasts.KINDS)
    assert {case.warm for case in cases} == {True, False}
