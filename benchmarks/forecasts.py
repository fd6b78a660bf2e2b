"""`python -m benchmarks.forecasts --seed N`: forecasts before a run, beside the trainer's clock.

Draws eighteen pipelines (images, tokens, mel spectrograms, Python, numpy, waits, large arrays; warm
and cold; short and long epochs; with and without a trainer), each in a process of its own: it makes
the forecast, then runs the pipeline and takes the time. Cold: nothing has run in the process, the
book of earlier runs is empty, and the files are not in the system's cache. For a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import silva as sv
from benchmarks.data import put_photos, put_speech, put_text
from benchmarks.gil import calibrate, work
from benchmarks.text import load, train

_CASES = 18
_RIGHT = (0.75, 1.25)
"""The forecast, as a share of the trainer's clock, that counts as right."""
_WANTED, _HOLDING = 16, 0.9
_PHOTOS, _CLIPS, _LINES = 3000, 1500, 120_000
_WARM_SECONDS = 1.5
_DEADLINE = 120.0
"""Seconds after which a process that hangs is ended."""


@dataclass(frozen=True)
class Case:
    """A pipeline, how it is read, and what was done before."""

    kind: str
    rows: int
    batch: int
    size: float
    """What a row costs, in the unit of its kind."""
    warm: bool
    epochs: int | None
    consumer: float
    """Seconds that the trainer takes for a batch."""
    options: dict[str, Any]

    @property
    def text(self) -> str:
        options = " ".join(f"{name}={value}" for name, value in self.options.items())
        epochs = f"{self.epochs} epochs" if self.epochs else "1 epoch"
        trainer = f" trainer {self.consumer * 1e3:.0f} ms" if self.consumer else ""
        warm = "warm" if self.warm else "cold"
        rows = f"{self.kind}({self.size:g}) {self.rows:,} rows /{self.batch}"
        return f"{rows} {epochs} {warm}{trainer} {options}"


# A kind: rows that take about a second on one core, sizes, and how the pipeline is made.
Make = Callable[[str, int, float], sv.Pipeline]


def images(folder: str, rows: int, size: float) -> sv.Pipeline:
    image = sv.image("bytes").decode().random_resized_crop(int(size)).random_flip()
    files = sv.read_files(f"{folder}/photos/*.jpg").take(rows)
    return files.derive(y=image.to_chw()).select("y")


def mel(folder: str, rows: int, size: float) -> sv.Pipeline:
    power = sv.audio("bytes").decode(rate=22_050).resample(22_050, 8000).spectrogram(int(size))
    files = sv.read_files(f"{folder}/clips/*.wav").take(rows)
    return files.derive(y=power.mel(8000, 64)).select("y")


def tokens(folder: str, rows: int, size: float) -> sv.Pipeline:
    ids = sv.text("text").tokenize(load(f"{folder}/bpe.json")).truncate(int(size))
    return sv.read_lines(f"{folder}/lines.txt").take(rows).derive(y=ids).select("y")


def python(folder: str, rows: int, size: float) -> sv.Pipeline:
    loops = calibrate(size * 1e-6)
    return _numbers(rows, lambda x: work(x, loops))


def arithmetic(folder: str, rows: int, size: float) -> sv.Pipeline:
    matrix = np.random.default_rng(0).random((int(size), int(size)))
    return _numbers(rows, lambda x: np.sort(matrix + x, axis=0)[0])


def waits(folder: str, rows: int, size: float) -> sv.Pipeline:
    def wait(x: int) -> int:
        time.sleep(size / 1e3)
        return x

    return _numbers(rows, wait)


def arrays(folder: str, rows: int, size: float) -> sv.Pipeline:
    data = np.random.default_rng(0).random((512, int(size) << 8), dtype=np.float32)
    drawn = sv.from_columns({"x": data}).sample(np.ones(512), size=rows)
    return drawn.derive(y=sv.col("x") * 2 + 1).select("y")


def _numbers(rows: int, function: Callable[[int], Any]) -> sv.Pipeline:
    return sv.from_columns({"x": range(rows)}).derive(y=function).select("y")


KINDS: dict[str, tuple[Make, tuple[float, ...], Callable[[float], float]]] = {
    "images": (images, (96, 160, 224), lambda size: 2.5e-3),
    "tokens": (tokens, (32, 128, 512), lambda size: 3e-5),
    "mel": (mel, (256, 400), lambda size: 4e-3),
    "python": (python, (20, 100, 500), lambda size: size * 1e-6),
    "numpy": (arithmetic, (64, 128, 192), lambda size: size**2 * 12e-9),
    "sleep": (waits, (1, 3, 8), lambda size: size * 1e-3),
    "arrays": (arrays, (16, 64, 256), lambda size: size * 256 * 1e-9),
}
"""How a kind is made, the sizes of its rows, and about how many seconds a row takes one core."""
MOST = {"images": _PHOTOS, "mel": _CLIPS, "tokens": _LINES}


def draw(seed: int) -> list[Case]:
    """Cases of every kind, as equally many as possible."""
    rng = np.random.default_rng(seed)
    kinds = [name for _ in range(_CASES) for name in rng.permutation(list(KINDS))][:_CASES]
    return [_draw(rng, str(kind)) for kind in kinds]


def _draw(rng: np.random.Generator, kind: str) -> Case:
    _, sizes, cost = KINDS[kind]
    size = float(rng.choice(sizes))
    seconds = rng.uniform(0.3, 1.0) if rng.random() < 0.5 else rng.uniform(4, 10)
    epochs = int(rng.choice([2, 3])) if rng.random() < 0.25 else None
    rows = int(seconds / cost(size) / (epochs or 1))
    rows = max(min(rows, MOST.get(kind, 1 << 20)), 64)
    batch = int(rng.choice([8, 32, 64]))
    consumer = 0.0
    if rng.random() < 0.3:  # about as long as one core needs for a batch, within a few seconds
        steps = rows * (epochs or 1) / batch
        consumer = round(min(rng.uniform(0.2, 1.5) * cost(size) * batch, 6.0 / steps), 4)
    options: dict[str, Any] = {}
    if rng.random() < 0.4:
        options["workers"] = int(rng.choice([2, 4, 8]))
    if rng.random() < 0.25:
        options["backend"] = str(rng.choice(["inline", "threads", "processes"]))
    return Case(kind, rows, batch, size, bool(rng.random() < 0.5), epochs, consumer, options)


def measure(folder: str, case: Case) -> dict[str, Any]:
    """The forecast, and then the rows per second by the trainer's clock."""
    pipeline = KINDS[case.kind][0](folder, case.rows, case.size).batch(case.batch, pad=0)
    options = {**case.options, "epochs": case.epochs}
    if case.warm:
        with pipeline.loader(**options) as loader:
            loader.measure(_WARM_SECONDS)
    found = pipeline.forecast(consumer=case.consumer, **options)
    rows, began = 0, time.perf_counter()
    with pipeline.loader(**options) as loader:
        for _ in range(case.epochs or 1):
            for batch in loader:
                rows += len(batch["y"])
                if case.consumer:
                    time.sleep(case.consumer)
        seconds = time.perf_counter() - began
        ran = ", ".join(f"{s['backend']} ×{s['workers']}" for s in loader.stats().values())
    where = ", ".join(f"{one.backend} ×{one.workers}" for one in found.stages)
    return {
        "forecast": found.rows_per_second, "low": found.low, "high": found.high,
        "real": rows / seconds, "seconds": seconds, "where": where, "ran": ran,
        "limit": found.limit,
    }  # fmt: skip


def run(folder: str, case: Case) -> dict[str, Any]:
    """One case in a process of its own, with a book of its own."""
    if not case.warm:
        _drop_cached(Path(folder))
    with tempfile.TemporaryDirectory(prefix="silva-bench-") as book:
        module = [sys.executable, "-m", "benchmarks.forecasts"]
        done = subprocess.run(
            [*module, "--in", folder, "--case", json.dumps(asdict(case))],
            env={**os.environ, "SILVA_PROFILES": book},
            capture_output=True,
            text=True,
            timeout=_DEADLINE,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"{case.text}: {done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _drop_cached(folder: Path) -> None:
    """Removes the files from the system's cache."""
    for path in {one.resolve() for one in folder.rglob("*.*") if one.is_file()}:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="a kind")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--in", dest="folder", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.case:
        print(json.dumps(measure(asked.folder, Case(**json.loads(asked.case)))))
        return 0
    cases = [one for one in draw(asked.seed) if asked.only in (None, one.kind)]
    right = holding = 0
    with tempfile.TemporaryDirectory(prefix="silva-bench-") as folder:
        for name in ("photos", "clips"):
            Path(folder, name).mkdir()
        put_photos(Path(folder, "photos"), _PHOTOS)
        put_speech(Path(folder, "clips"), _CLIPS)
        put_text(Path(folder, "lines.txt"), _LINES)
        train(f"{folder}/lines.txt", f"{folder}/bpe.json")
        print("forecast/clock  holds   forecast rows/s       clock rows/s      s  pipeline")
        for case in cases:
            found = run(folder, case)
            share = found["forecast"] / found["real"]
            holds = found["low"] <= found["real"] <= found["high"]
            right += _RIGHT[0] <= share <= _RIGHT[1]
            holding += holds
            print(
                f"{share:14.2f}  {'yes' if holds else 'NO':5} {found['forecast']:17,.0f}"
                f" {found['real']:18,.0f} {found['seconds']:6.1f}  {case.text}"
                f" [{found['where']} → {found['ran']}; {found['limit']}]",
                flush=True,
            )
    print(f"{right} of {len(cases)} within 0.75–1.25; wanted: {_WANTED} of {_CASES}")
    print(f"{holding} of {len(cases)} intervals hold; wanted: {_HOLDING:.0%}")
    return 0 if right >= _WANTED * len(cases) / _CASES and holding >= _HOLDING * len(cases) else 1


if __name__ == "__main__":
    sys.exit(main())
