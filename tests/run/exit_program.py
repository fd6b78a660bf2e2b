"""A program that ends in one of many ways while silva is at work; `test_exit.py` runs it."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import silva as sv

KEPT: list[Any] = []
"""What is still alive when Python exits."""


def photos() -> sv.Pipeline:
    """Native steps, and laws that are compared on the first rows beside the loop."""
    pixels = np.random.default_rng(0).integers(0, 255, (2, 427, 640, 3), dtype=np.uint8)
    jpegs = sv.from_columns({"image": pixels}).derive(bytes=sv.image("image").encode("jpeg"))
    (batch,) = jpegs.select("bytes").batch(2).loader(workers=0)
    x = sv.image("bytes").decode().resize(400, 600).color_jitter(0.2, 0.2, 0.2, 0.1).grayscale()
    rows = [{"bytes": batch["bytes"][i % 2]} for i in range(400)]
    return sv.from_items(rows).derive(image=x.center_crop(300)).select("image").batch(2)


def numbers(rows: int = 4000) -> sv.Pipeline:
    return sv.from_columns({"x": range(rows)}).derive(y=lambda x: np.full(64, x)).batch(4)


def lines(folder: str) -> sv.Pipeline:
    """Rows of a chunked source, which threads read ahead."""
    for name in range(6):
        Path(folder, f"{name}.jsonl").write_bytes(b'{"x": 1}\n' * 300_000)
    return sv.read_json(f"{folder}/*.jsonl").batch(16)


def at_check(loader: sv.Loader) -> None:
    """Leaves the loop while the laws are compared."""
    for _ in loader:
        if loader._planner.checking.check is not None:
            return


def closed_during_the_check() -> None:
    with photos().loader(workers=2, backend="threads") as loader:
        at_check(loader)
    assert not [t for t in threading.enumerate() if t.name.startswith("silva-")]


def check_in_a_loader_that_is_kept() -> None:
    KEPT.append(photos().loader(workers=2, backend="threads", epochs=2))
    at_check(KEPT[0])


def half_read(**how: Any) -> Any:
    batches = iter(numbers().loader(**how))
    KEPT.append(batches)
    return next(batches)


def threads_half_read() -> None:
    half_read(workers=2, backend="threads")


def processes_half_read() -> None:
    half_read(workers=2, backend="processes")


def several_half_read() -> None:
    for workers in range(3):
        half_read(workers=workers, backend="threads" if workers else "inline", progress=True)


def files_half_read() -> None:
    with tempfile.TemporaryDirectory() as folder:
        batches = iter(lines(folder).loader(workers=2, backend="threads"))
        next(batches)
        KEPT.append(batches)


def next_epoch_begun() -> None:
    loader = numbers(64).loader(workers=2, backend="threads", epochs=9)
    KEPT.append(loader)
    list(loader)


def in_a_cycle() -> None:
    gc.disable()
    loader = photos().loader(workers=2, backend="threads")
    cycle: list[Any] = [loader, iter(loader)]
    next(cycle[1])
    cycle.append(cycle)


def sys_exit_in_the_loop() -> None:
    for _ in photos().loader(workers=2, backend="threads"):
        sys.exit(3)


def error_in_the_loop() -> None:
    for _ in photos().loader(workers=2, backend="threads", progress=True):
        raise RuntimeError("in the loop")


def ctrl_c_in_the_loop() -> None:
    for _ in photos().loader(workers=2, backend="threads"):
        signal.raise_signal(signal.SIGINT)


def torch_half_read() -> None:
    feed = iter(numbers().loader(workers=2, backend="threads", progress=True).to_torch())
    next(feed)
    KEPT.append(feed)


def dataloader_half_read() -> None:
    from torch.utils.data import DataLoader

    feed = numbers().loader(workers=2, backend="threads", progress=True).to_torch()
    batches = iter(DataLoader(feed, batch_size=None))
    next(batches)
    KEPT.append(batches)


def jax_half_read() -> None:
    batches = numbers().loader(workers=2, backend="threads", progress=True).to_jax()
    next(batches)
    KEPT.append(batches)


def arrow_half_read() -> None:
    reader = numbers().select("x").loader(workers=2, backend="threads", progress=True).to_arrow()
    reader.read_next_batch()
    KEPT.append(reader)


def blocks_half_read() -> None:
    blocks = numbers().loader(workers=2, backend="threads", progress=True).blocks()
    next(blocks)
    KEPT.append(blocks)


def read_in_a_thread() -> None:
    thread = threading.Thread(target=threads_half_read)
    thread.start()
    thread.join()


def read_by_a_thread_that_goes_on() -> None:
    """Python waits for threads that are no daemons, and they may read to the end."""

    def work() -> None:
        threading.main_thread().join()
        assert len(list(numbers(400).loader(workers=2, backend="threads"))) == 100

    threading.Thread(target=work).start()


def in_a_forked_child() -> None:
    half_read(workers=2, backend="threads")
    if not os.fork():
        half_read(workers=2, backend="threads")
        return
    _, status = os.wait()
    assert not status, status


def in_a_child_of_multiprocessing() -> None:
    half_read(workers=2, backend="threads")
    child = multiprocessing.get_context("fork").Process(target=processes_half_read)
    child.start()
    child.join()
    assert child.exitcode == 0


def service_never_closed() -> None:
    service = sv.Service({"it": numbers()}, workers=2, backend="threads")
    batches = iter(sv.connect(service.address, "it", token=service.token))
    list(islice(batches, 3))
    KEPT.extend([service, batches])


def _spin(x: int) -> int:
    import cv2

    pixels = np.zeros((64, 64, 3), np.uint8)
    while True:
        cv2.GaussianBlur(pixels, (5, 5), 0)


def in_a_step(step: Any) -> None:
    begun = threading.Event()

    def first(x: int) -> int:
        begun.set()
        return x

    pipeline = sv.from_columns({"x": range(64)}).derive(x=first).derive(y=step).batch(4)
    batches = iter(pipeline.loader(workers=2, backend="threads"))
    reader = threading.Thread(target=lambda: next(batches, None), daemon=True)
    threading.excepthook = lambda what: None  # the user's own thread is told of the end, aloud
    reader.start()
    begun.wait()
    KEPT.append(batches)


def step_that_never_ends() -> None:
    in_a_step(_spin)


def step_that_hangs() -> None:
    in_a_step(lambda x: threading.Event().wait())


def native_call_that_ends_during_finalisation() -> None:
    """Python begins to finalise while the call is under way, and still does when it returns."""

    class Slow:
        def __del__(self, sleep: Any = time.sleep) -> None:
            sleep(4.0)

    def long(x: int) -> int:
        import cv2

        cv2.setNumThreads(1)
        cv2.filter2D(np.zeros((9000, 9000), np.float32), -1, np.ones((9, 9), np.float32))
        return x

    in_a_step(long)
    sys.modules["slow"] = Slow()  # type: ignore[assignment]


if __name__ == "__main__":
    globals()[sys.argv[1]]()
