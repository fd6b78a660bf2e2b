"""However a program ends, it ends: with its own status, in silence, and with no thread left."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import silva as sv
from silva.lifetime import FAREWELL

PROGRAM = Path(__file__).with_name("exit_program.py")
SOURCES = Path(sv.__file__).parent
ENDINGS = {
    "sys_exit_in_the_loop": (3, r""),
    "error_in_the_loop": (1, r"Traceback .*RuntimeError: in the loop\n"),
    "ctrl_c_in_the_loop": (-signal.SIGINT, r"Traceback .*KeyboardInterrupt\n"),
}
"""Status and last words, where they are not 0 and nothing."""
QUICK = [
    "closed_during_the_check",
    "threads_half_read",
    "processes_half_read",
    "files_half_read",
    "next_epoch_begun",
    "in_a_cycle",
    "sys_exit_in_the_loop",
    "ctrl_c_in_the_loop",
    "read_by_a_thread_that_goes_on",
]
MORE = [
    "check_in_a_loader_that_is_kept",
    "several_half_read",
    "error_in_the_loop",
    "torch_half_read",
    "arrow_half_read",
    "blocks_half_read",
    "read_in_a_thread",
    "in_a_forked_child",
    "service_never_closed",
]
LONG = [
    "dataloader_half_read",
    "jax_half_read",
    "in_a_child_of_multiprocessing",
    "step_that_never_ends",
    "step_that_hangs",
]


def check_ending(how: str) -> None:
    status, words = ENDINGS.get(how, (0, ""))
    done = subprocess.run(
        [sys.executable, str(PROGRAM), how], capture_output=True, text=True, timeout=120
    )
    said = re.sub(r"^epoch \d+ .*\n", "", done.stderr, flags=re.MULTILINE)
    assert re.fullmatch(words, said, flags=re.DOTALL), done.stderr
    assert (done.returncode, done.stdout) == (status, "")


@pytest.mark.parametrize("how", QUICK)
def test_a_program_ends_as_it_should(how: str) -> None:
    check_ending(how)


@pytest.mark.rest
@pytest.mark.parametrize("how", [*QUICK, *MORE, *LONG])
def test_a_program_ends_as_it_should_every_time(how: str) -> None:
    for _ in range(3 if how in LONG else 16):
        check_ending(how)


@pytest.mark.rest
def test_a_native_call_that_returns_during_finalisation_does_not_abort() -> None:
    how = "native_call_that_ends_during_finalisation"
    done = subprocess.run([sys.executable, str(PROGRAM), how], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_every_thread_of_silva_is_one_that_exit_knows() -> None:
    """`threading.Thread` itself is for what ends with its process in another way."""
    own = {"lifetime.py", "run/pools/worker.py"}
    for path in sorted(SOURCES.rglob("*.py")):
        name = path.relative_to(SOURCES).as_posix()
        used = re.search(r"\bThread\(target|threading\.Thread\(|daemon=", path.read_text("utf-8"))
        assert name in own or not used, f"{name}: a thread is a silva.lifetime.Thread"


def silva_threads() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if t.name.startswith("silva-")}


def test_closing_a_loader_from_outside_ends_those_who_read_files(tmp_path: Path) -> None:
    for name in range(4):
        (tmp_path / f"{name}.jsonl").write_bytes(b'{"x": 1}\n' * 300_000)
    loader = sv.read_json(f"{tmp_path}/*.jsonl").batch(16).loader(workers=2, backend="threads")
    batches = iter(loader)
    next(batches)
    assert any("reader" in thread.name for thread in silva_threads())
    loader.close()
    assert not silva_threads()
    with pytest.raises(sv.LoaderError, match="closed while it was being read"):
        list(batches)


def test_closing_waits_no_longer_than_it_says_for_a_step_that_hangs() -> None:
    begun, free = threading.Event(), threading.Event()

    def hangs(x: int) -> int:
        begun.set()
        free.wait()
        return x

    loader = (
        sv.from_columns({"x": range(8)})
        .derive(y=hangs)
        .batch(4)
        .loader(workers=1, backend="threads")
    )
    found: list[BaseException] = []

    def read() -> None:
        try:
            list(loader)
        except sv.LoaderError as error:
            found.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    begun.wait()
    loader.close()  # comes back although the thread hangs
    reader.join(20 * FAREWELL)
    assert not reader.is_alive()
    assert "closed while it was being read" in str(found[0])
    free.set()
    for thread in silva_threads():
        thread.join(20 * FAREWELL)


def test_a_check_that_was_given_up_begins_again_with_the_next_loop() -> None:
    x = sv.num("x").clip(0, 900).clip(0, 700)
    pipeline = sv.from_columns({"x": np.arange(4000)}).derive(y=x).batch(4)
    with pipeline.loader(workers=2, backend="threads") as loader:
        for _ in loader:
            checking = loader._planner.checking
            if checking.check is not None:
                break
        assert checking.pending
        batches = iter(loader)  # kept: a loop that is dropped gives the check up again
        next(batches)
        check = checking.check
        assert check is not None
        assert check.thread is not None
        check.thread.join()
        assert check.verdict is not None
