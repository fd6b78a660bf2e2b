"""What one plan has saved, any other goes on with; what is damaged is not used."""

from __future__ import annotations

import itertools
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.train.models import make
from tests.train.ranks import Ranks
from tests.train.test_same_as_one_process import plan_of, share

from silva.train.checkpoint.manifest import NAME, CheckpointError, decode
from silva.train.checkpoint.read import find, read
from silva.train.checkpoint.write import committed, write
from silva.train.choice import Choice
from silva.train.running.trainer import Trainer

PLANS = {
    "one": Choice(),
    "ddp": Choice(dp=2),
    "fsdp": Choice(fsdp=2),
    "tp": Choice(tp=2),
    "pp": Choice(pp=2, microbatches=2),
    "fsdp × tp": Choice(fsdp=2, tp=2),
    "pp × fsdp": Choice(pp=2, fsdp=2, microbatches=2),
}


def trainer_of(name: str, choice: Choice) -> Trainer:
    torch.manual_seed(0)
    return plan_of(name, choice).build(lambda p: torch.optim.AdamW(p, 1e-3), verify=False)


def steps(trainer: Trainer, name: str, first: int, count: int) -> list[float]:
    _, batch = make(name)
    found = []
    for number in range(first, first + count):
        whole = {
            n: (v + number) % 100 if not v.is_floating_point() else v + 0.1 * number
            for n, v in batch.items()
        }
        choice = trainer.layout.choice
        found.append(trainer.step(share(whole, trainer.layout.reader, choice.readers)))
    return found


def save(name: str, choice: Choice, folder: str) -> list[float]:
    trainer = trainer_of(name, choice)
    steps(trainer, name, 0, 2)
    write(Path(folder), trainer, 2, data={"cursor": 5}, extra={"epoch": 1})
    return steps(trainer, name, 2, 3)


def resume(name: str, choice: Choice, folder: str) -> list[float]:
    trainer = trainer_of(name, choice)
    found = find(Path(folder))
    assert found is not None
    path, manifest = found
    assert manifest.data == {"cursor": 5}
    read(path, manifest, trainer)
    return steps(trainer, name, 2, 3)


@pytest.mark.parametrize(("before", "after"), [("fsdp", "tp"), ("tp", "pp")])
def test_another_plan_goes_on_with_the_same_losses(
    ranks: Ranks, tmp_path: Path, before: str, after: str
) -> None:
    check(ranks, "gpt2", tmp_path, before, after)


@pytest.mark.rest
@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize(("before", "after"), itertools.pairwise([*PLANS, *PLANS][:8]))
def test_every_plan_goes_on_with_what_another_has_saved(
    ranks: Ranks, tmp_path: Path, name: str, before: str, after: str
) -> None:
    check(ranks, name, tmp_path, before, after)


def check(ranks: Ranks, name: str, folder: Path, before: str, after: str) -> None:
    a, b = PLANS[before], PLANS[after]
    wanted = ranks.run(a.world, __name__, "save", name, a, str(folder))[0]
    for found in ranks.run(b.world, __name__, "resume", name, b, str(folder)):
        for one, other in zip(found, wanted, strict=True):
            assert abs(one - other) <= 1e-5 * abs(other)


def saved(folder: Path, steps: tuple[int, ...] = (1, 2)) -> Trainer:
    trainer = trainer_of("encoder", Choice())
    for number in steps:
        write(folder, trainer, number)
    return trainer


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path: Path) -> None:
    saved(tmp_path)
    last = committed(tmp_path)[0]
    (file,) = last.glob("*.safetensors")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.warns(RuntimeWarning, match="is damaged"):
        found = find(tmp_path)
    assert found is not None
    assert found[1].step == 1


def test_what_was_not_committed_does_not_count(tmp_path: Path) -> None:
    saved(tmp_path)
    (committed(tmp_path)[0] / NAME).unlink()
    found = find(tmp_path)
    assert found is not None
    assert found[1].step == 1


def test_only_the_last_ones_are_kept(tmp_path: Path) -> None:
    saved(tmp_path, steps=(1, 2, 3, 4, 5))
    assert [path.name[-1] for path in committed(tmp_path)] == ["5", "4", "3"]
    assert len(list(tmp_path.iterdir())) == 3


class Planted:
    def __reduce__(self) -> Any:
        return print, ("this must not run",)


def test_a_planted_pickle_is_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = saved(tmp_path, steps=(1,))
    folder = committed(tmp_path)[0]
    (file,) = folder.glob("*.safetensors")
    file.write_bytes(pickle.dumps(Planted()))
    with pytest.warns(RuntimeWarning, match="is damaged"):
        assert find(tmp_path) is None
    with pytest.raises(CheckpointError):
        read(folder, decode(folder), trainer)
    (folder / NAME).write_bytes(pickle.dumps(Planted()))
    with pytest.raises(CheckpointError, match="is no manifest"):
        decode(folder)
    assert "must not run" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.update(version=9), "format 9"),
        (lambda m: m.update(more=1), "no manifest"),
        (lambda m: m["files"].update({"../x": {"nbytes": 1, "sha256": ""}}), "outside"),
        (lambda m: next(iter(m["tensors"].values())).update(shape=[1, 1, 1]), "does not fit"),
    ],
)
def test_a_changed_manifest_is_refused(tmp_path: Path, change: Any, said: str) -> None:
    saved(tmp_path, steps=(1,))
    file = committed(tmp_path)[0] / NAME
    manifest = json.loads(file.read_text())
    change(manifest)
    file.write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=said):
        decode(committed(tmp_path)[0])


def test_a_full_disk_fails_the_save_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    trainer = saved(tmp_path, steps=(1,))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    import signal

    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
        with pytest.raises(CheckpointError, match="was not written"):
            write(tmp_path, trainer, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    found = find(tmp_path)
    assert found is not None
    assert found[1].step == 1
    assert len(list(tmp_path.iterdir())) == 1
