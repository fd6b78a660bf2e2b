"""Plans that are chosen from measurements: which, when, and that the stream does not show it."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import silva as sv
from silva.plan.decision import Decision
from silva.planner import planner
from silva.rewrite import runner
from silva.testing import digest, replanned, stream

ROWS = 1200


def spin(seconds: float) -> None:
    """Work that takes so long on any machine, however busy it is."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def slow(x):
    spin(4e-4)
    return x * 2


def dull(z):
    spin(3e-4)
    return z % 3 != 0


def sharp(x):
    spin(2e-5)
    return x % 10 == 0


def _rows(count: int = ROWS) -> sv.Pipeline:
    return sv.from_columns({"x": range(count), "z": range(count)})


def _written_badly(batch: int = 8) -> sv.Pipeline:
    """Everything before the filter that would spare it."""
    return _rows().derive(y=slow).filter(dull).filter(sharp).batch(batch)


def _choices(loader: sv.Loader) -> list[Decision]:
    return [d for d in loader.facts().decisions if d.kind == "choice" and d.applied]


def _names(loader: sv.Loader) -> list[str]:
    return [choice.name for choice in _choices(loader)]


def _notes(loader: sv.Loader) -> str:
    return "; ".join(note for choice in _choices(loader) for note in choice.notes)


def test_filters_are_ordered_by_cost_and_selectivity() -> None:
    pipeline = _written_badly()
    with pipeline.loader(backend="inline") as loader:
        found = stream(loader)
        assert _names(loader) == ["order"]
        assert "sharp(x)" in _notes(loader).partition("before")[0]
        assert "dull(z)" in _notes(loader).partition("before")[2]
        (choice,) = _choices(loader)
        assert choice.predicted_gain > 1.5
    assert found == stream(pipeline.options(optimize=False).loader(backend="inline"))


def test_what_was_measured_is_remembered() -> None:
    """The first batch takes long enough for planning before it."""
    with _written_badly(batch=32).loader(backend="inline") as loader:
        first = stream(loader)
    with _written_badly(batch=32).loader(backend="inline") as again:
        batches = iter(again)
        next(batches)
        assert _names(again) == ["order"], "chosen before the first row"
        batches.close()
        again.set_epoch(0)
        assert stream(again) == first


def test_another_function_is_not_mistaken_for_the_one_that_was_measured() -> None:
    with _written_badly().loader(backend="inline") as loader:
        stream(loader)
    other = _rows().derive(y=lambda x: x).filter(dull).filter(sharp).batch(8)
    with other.loader(backend="inline") as loader:
        next(iter(loader))
        assert _names(loader) == []


def test_damaged_profiles_are_measured_again(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("SILVA_PROFILES", str(tmp_path))
    with _written_badly().loader(backend="inline") as loader:
        first = stream(loader)
    files = sorted(tmp_path.iterdir())
    assert files
    for number, file in enumerate(files):
        file.write_bytes([b"", b"{}", b'{"rows": "many"}', b"\xff\x00"][number % 4])
    with _written_badly().loader(backend="inline") as loader:
        assert stream(loader) == first


def test_a_profile_folder_that_cannot_be_written_is_tolerated(monkeypatch, tmp_path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    monkeypatch.setenv("SILVA_PROFILES", str(file / "profiles"))
    with _written_badly().loader(backend="inline") as loader:
        assert stream(loader)


@pytest.mark.parametrize("name", ["order", "cache"])
def test_choices_can_be_switched_off(name: str) -> None:
    pipeline = _written_badly().options(disable=[name])
    with pipeline.loader(backend="inline", epochs=3) as loader:
        stream(loader)
        assert name not in _names(loader)


def counted(x):
    counted.calls += 1  # on the function: a global would be part of its fingerprint
    spin(3e-4)
    return np.full(100, x)


def test_rows_that_are_the_same_in_every_epoch_are_cached() -> None:
    counted.calls = 0
    pipeline = _rows().derive(y=counted).derive(w=lambda y, rng: y + rng.random()).batch(8)
    with pipeline.loader(backend="inline", epochs=4) as loader:
        epochs = [stream(loader) for _ in range(4)]
        assert _names(loader) == ["cache"]
        assert "in memory after y" in _notes(loader)
        assert int(re.search(r"in each of (\d) epochs", _notes(loader))[1]) <= 4
    assert counted.calls < 2.5 * ROWS, "in the first epochs, until the cache is full"
    assert len(set(map(tuple, epochs))) == 4, "what is random differs in every epoch"
    off = pipeline.loader(backend="inline", epochs=4, cache="off")
    assert epochs == [stream(off) for _ in range(4)]


def test_nothing_is_cached_where_it_does_not_pay() -> None:
    cheap = _rows(20_000).derive(y=lambda x: x + 1).batch(100)
    with cheap.loader(backend="inline", epochs=3) as loader:
        for _ in range(3):
            stream(loader)
        assert _names(loader) == []


def test_a_random_function_is_never_cached() -> None:
    pipeline = _rows(400).derive(y=lambda x, rng: spin(1e-3) or rng.random()).batch(8)
    with pipeline.loader(backend="inline", epochs=3) as loader:
        epochs = [stream(loader) for _ in range(3)]
        assert _names(loader) == []
    assert epochs[0] != epochs[1]


def test_little_memory_caches_part_of_the_rows() -> None:
    counted.calls = 0
    pipeline = _rows().derive(y=counted).batch(8)
    with pipeline.loader(backend="inline", epochs=4, memory=ROWS * 800) as loader:
        epochs = [stream(loader) for _ in range(4)]
        assert "% of the rows" in _notes(loader)
    assert ROWS < counted.calls < 4 * ROWS
    plain = pipeline.options(optimize=False).loader(backend="inline", epochs=4)
    assert epochs == [stream(plain) for _ in range(4)]


def test_the_disk_is_used_for_caches_only_if_it_was_given(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("SILVA_CACHE", str(tmp_path))
    pipeline = _rows().derive(y=counted).batch(8)
    with pipeline.loader(backend="inline", epochs=3, memory="256KiB", cache="64MiB") as loader:
        first = [stream(loader) for _ in range(3)]
        assert "on disk after y" in _notes(loader)
    assert list(tmp_path.rglob("*.rows"))
    counted.calls = 0
    with pipeline.loader(backend="inline", epochs=3, memory="256KiB", cache="64MiB") as loader:
        assert [stream(loader) for _ in range(3)] == first
    assert counted.calls < ROWS / 2, "a later run finds the rows of an earlier one"


class Numbers(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, i: int) -> dict[str, int]:
        return {"x": i}


def test_rows_of_a_torch_dataset_are_not_kept_on_disk(monkeypatch, tmp_path) -> None:
    """Of a dataset only its type and length are known: a later one might have other rows."""
    monkeypatch.setenv("SILVA_CACHE", str(tmp_path))
    pipeline = sv.from_torch(Numbers()).derive(y=counted).batch(8)
    with pipeline.loader(backend="inline", epochs=3, memory="256KiB", cache="64MiB") as loader:
        for _ in range(3):
            stream(loader)
        assert "on disk" not in _notes(loader)
    assert not list(tmp_path.rglob("*.rows"))


def test_a_filter_that_guards_a_step_still_does() -> None:
    pipeline = (
        sv.from_columns({"x": range(4000)})
        .filter(lambda x: spin(2e-4) or x % 4 != 0)
        .filter(lambda x: 1 / (x % 4) < 0.4)
        .batch(10)
    )
    with pipeline.loader(backend="inline") as loader:
        found = stream(loader)
        refused = [d.name for d in loader.facts().decisions if not d.applied]
        assert "order" in refused, "the sharper filter was tried first, and failed"
        assert _names(loader) == []
    assert found == stream(pipeline.options(optimize=False).loader(backend="inline"))


def test_a_real_failure_is_the_one_that_was_written() -> None:
    pipeline = _rows(200).derive(y=lambda x: 10 // (x - 100)).filter(sharp).filter(dull).batch(5)
    errors = []
    for seed in range(4):
        made = pipeline.loader(backend="inline")
        with replanned(made, seed) as loader, pytest.raises(sv.RowError) as error:
            stream(loader)
        errors.append((error.value.key, error.value.step))
    assert len(set(errors)) == 1
    assert errors[0][0] == "0:100"


@pytest.mark.parametrize("on_error", ["raise", sv.Skip(at_most=50), sv.Substitute(-1)])
def test_states_move_between_plans(on_error) -> None:
    def fails(x):
        if x % 7 == 3 and on_error != "raise":
            raise ValueError(x)
        return x * 2

    pipeline = (
        _rows(90)
        .derive(y=fails)
        .filter(lambda z: z % 5 != 0)
        .shuffle(seed=1)
        .filter(lambda x: x % 2 == 0)
        .derive(w=lambda y, rng: y + rng.random())
        .batch(4)
    )
    plain = pipeline.options(optimize=False)
    options = {"backend": "inline", "epochs": 2, "on_error": on_error}
    expected = stream(plain.loader(**options))
    for seed in range(2):
        loader = replanned(pipeline.loader(**options), seed)
        for given, _ in enumerate(loader, start=1):
            state = json.loads(json.dumps(loader.state_dict()))
            other = plain.loader(**options)
            other.load_state_dict(state)
            assert stream(other) == expected[given:], (seed, given)
            back = replanned(pipeline.loader(**options), seed + 1)
            back.load_state_dict(state)
            assert stream(back) == expected[given:], (seed, given)


def test_an_expression_is_kept_where_it_is_smallest(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    from silva.operators.image import image

    noisy = rng.integers(0, 255, (24, 256, 256, 3), dtype=np.uint8)
    (jpegs,) = (
        sv.from_columns({"image": noisy})
        .derive(bytes=image("image").encode("jpeg", quality=95))
        .select("bytes")
        .batch(24)
    )
    for number, data in enumerate(jpegs["bytes"]):
        (tmp_path / f"{number:03}.jpg").write_bytes(data)
    pipeline = (
        sv.read_files(str(tmp_path / "*.jpg"))
        .derive(
            image=image("bytes")
            .decode()
            .resize(64, 64)
            .random_crop(56)
            .normalize((0.5, 0.5, 0.5), (0.2, 0.2, 0.2))
        )
        .select("image")
        .batch(4)
    )
    with pipeline.loader(backend="inline", epochs=40) as loader:
        epochs = [stream(loader) for _ in range(40)]
        assert _names(loader) == ["cache"]
        assert "up to resize" in _notes(loader)
    plain = pipeline.options(optimize=False).loader(backend="inline", epochs=40)
    assert epochs == [stream(plain) for _ in range(40)]


@pytest.mark.parametrize("cache", [None, True, 0, -1, 2.5, "plenty", "", [1]])
def test_a_cache_that_is_no_amount_is_refused(cache) -> None:
    with pytest.raises(sv.PlanError):
        _rows(10).batch(2).loader(cache=cache)


@pytest.mark.parametrize("close", [5, None, "gray_decode", {"a": 1}])
def test_a_state_whose_laws_are_no_list_is_refused(close) -> None:
    loader = _rows(10).batch(2).loader(workers=0)
    state = {**loader.state_dict(), "close": close}
    with pytest.raises(sv.StateError):
        loader.load_state_dict(state)


def test_the_steps_of_a_join_are_measured_like_others() -> None:
    right = {"key": list(range(0, ROWS, 2)), "found": list(range(0, ROWS, 2))}
    joined = _rows().filter(dull).join(right, on={"z": "key"}, how="inner").filter(sharp)
    pipeline = joined.derive(n=sv.col("found") + 1).batch(8)
    with pipeline.loader(backend="inline", cache="off") as loader:
        found = stream(loader) + stream(loader)
        assert _names(loader) == ["order"]
    with pipeline.options(optimize=False).loader(backend="inline", cache="off") as written:
        assert found == stream(written) + stream(written)


def test_a_costly_filter_overtakes_another_one_to_pass_an_explode() -> None:
    """Whether that pays depends on what they cost, so it is known only when they were measured."""

    def whole(parts):
        spin(1e-4)
        return parts >= 0

    def fails_on_one(x):
        spin(2e-5)
        return x % 10 == 0 and 1 / (x - 500) != 0

    rows = sv.from_columns({"x": range(ROWS), "parts": [[i, -1, i] for i in range(ROWS)]})
    pipeline = rows.explode("parts").filter(whole).filter(fails_on_one).batch(8)
    for policy in ("raise", sv.Skip(at_most=9)):
        found = []
        for optimize in (True, False):
            seen = []
            given = pipeline.options(optimize=optimize)
            with given.loader(backend="inline", cache="off", on_error=policy) as loader:
                for _ in range(2):
                    try:
                        for batch in loader:
                            seen += [(digest(batch), json.dumps(loader.state_dict()))]
                    except sv.RowError as error:
                        seen.append((str(error), ""))
                if optimize and policy == "raise":
                    assert _names(loader) == ["order"]
                    ran = str(loader.explain()).partition("Plan as run")[2]
                    assert ran.index("filter fails_on_one(x)") < ran.index("explode parts")
                elif optimize:
                    assert _names(loader) == []
            found.append(seen)
        assert found[0] == found[1]


@pytest.mark.parametrize(("merges", "passes"), [(False, 1), (True, 2)])
def test_rules_run_again_only_where_they_have_changed_steps(monkeypatch, merges, passes) -> None:
    """The trainer waits for them before its first batch."""
    counted = []

    def counting(*given, **options):
        counted.append(given)
        return runner.optimize(*given, **options)

    monkeypatch.setattr(planner, "optimize", counting)
    x = sv.col("x")
    first = sv.from_columns({"x": range(4)}).derive(y=x + 1)
    rows = first.derive(z=sv.col("y") * 2) if merges else first
    rows.select("z" if merges else "y").batch(2).loader(workers=0)
    assert len(counted) == passes
