"""What holds for every test: reproducible examples, and nothing left behind.

Silva promises that no process and no thread outlives its owner, so every test checks it, whatever
else it is about.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Generator, Iterator
from multiprocessing import forkserver, resource_tracker
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, settings

GRACE = 60.0
"""Seconds that a closed process or thread may take to be gone."""

settings.register_profile(
    "random",
    print_blob=True,
    deadline=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow],  # about the machine's load, not about the code
)
settings.register_profile("fixed", settings.get_profile("random"), derandomize=True, database=None)
settings.register_profile("thorough", settings.get_profile("random"), max_examples=2000)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "fixed" if os.environ.get("CI") == "true" else "random")
)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as of a job in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what tests start can be interrupted

_FAILED = pytest.StashKey[bool]()


def pytest_collection_finish() -> None:
    """What lives until the end need not be looked through each time that garbage is collected."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


@pytest.fixture
def forget_rules() -> Iterator[None]:
    """Forgets rules and laws that a test registers: they would be used on the plans of others."""
    from silva.plan import law
    from silva.rewrite import runner

    law.laws()  # built-in ones register only once
    registries: tuple[dict[str, Any], ...] = (runner._RULES, law.LAWS)
    before = [dict(registry) for registry in registries]
    yield
    for registry, kept in zip(registries, before, strict=True):
        registry.clear()
        registry.update(kept)


@pytest.fixture(autouse=True)
def _own_profiles(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No test is planned by what another measured."""
    monkeypatch.setenv("SILVA_PROFILES", str(tmp_path_factory.mktemp("profiles")))


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves a child process, or a thread that is silva's or would block exit.

    Autouse fixtures are set up first and torn down last, so what the test's own fixtures close is
    closed by now. A failed test is cleaned up after but not blamed: its traceback keeps its loader
    alive.
    """
    processes_before = _children()
    threads_before = set(threading.enumerate())
    yield
    failed = request.node.stash.get(_FAILED, False)
    if not (_children() - processes_before or _threads() - threads_before):
        return
    gc.collect()  # a dropped loader may be part of a cycle
    deadline = time.monotonic() + (0.0 if failed else GRACE)
    threads = _outlasting(_threads() - threads_before, deadline)
    left = [p for p in _children() - processes_before if not _is_below(p, processes_before)]
    _, processes = psutil.wait_procs(left, timeout=max(0.0, deadline - time.monotonic()))
    found = [f"process {_describe(p)}" for p in processes]
    found += [f"thread {t.name!r}{' (daemon)' if t.daemon else ''}" for t in threads]
    for process in processes:
        process.kill()
    psutil.wait_procs(processes, timeout=GRACE)
    if found and not failed:
        pytest.fail("the test left behind:\n  " + "\n  ".join(found), pytrace=False)


def _children() -> set[psutil.Process]:
    """All descendants, but for the servers that multiprocessing keeps until exit."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # there is no child: no need to look at every process
        return set()
    servers = {
        getattr(getattr(resource_tracker, "_resource_tracker", None), "_pid", None),
        getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None),
    }
    return {p for p in psutil.Process().children(recursive=True) if p.pid not in servers}


def _is_below(process: psutil.Process, servers: set[psutil.Process]) -> bool:
    """Whether a server that was there before started it: of a cluster that tests share, say."""
    try:
        return bool(set(process.parents()) & servers)
    except psutil.Error:
        return False


def _threads() -> set[threading.Thread]:
    """The threads that matter: silva's own, and those that would keep Python from exiting."""
    return {t for t in threading.enumerate() if t.name.startswith("silva-") or not t.daemon}


def _outlasting(threads: set[threading.Thread], deadline: float) -> list[threading.Thread]:
    """The threads that are still alive at the deadline. One may have held what owns it (an error
    with its frames) when garbage was collected, so that is done again."""
    for thread in threads:
        while thread.is_alive() and time.monotonic() < deadline:
            thread.join(min(0.5, max(0.0, deadline - time.monotonic())))
            gc.collect()
    return [t for t in threads if t.is_alive()]


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} ({process.status()}): {' '.join(process.cmdline())[:200]}"
    except psutil.Error:
        return str(process.pid)
