"""A pool of rank processes: importing torch takes seconds, a case a fraction of one.

Each case gets a process group of its own, of as many ranks as it asks for. One that does not end in
time, or whose ranks fail, restarts the pool.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import tempfile
import traceback
from multiprocessing.connection import Connection, wait
from typing import Any

_DEADLINE = 60.0
"""Seconds of a case; a machine may be busy."""


class Ranks:
    """A process that keeps the pool. It is there before the first test, so that ranks which it
    starts again are not taken for what a test has left behind."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, there = context.Pipe()
        self._process = context.Process(target=_keep, args=(there,))
        self._process.start()
        there.close()

    def run(self, world: int, module: str, function: str, *args: Any) -> list[Any]:
        """What the function gives on each rank. An error of a rank is raised here."""
        self._pipe.send((world, module, function, args))
        is_error, found = self._pipe.recv()
        if is_error:
            raise AssertionError(found)
        ranks: list[Any] = found
        return ranks

    def close(self) -> None:
        self._pipe.close()
        self._process.join()


def _keep(pipe: Connection) -> None:
    pool = _Pool(4)
    try:
        while True:
            world, module, function, args = pipe.recv()
            try:
                pipe.send((False, pool.run(world, module, function, *args)))
            except AssertionError as error:
                pipe.send((True, str(error)))
    except EOFError:
        pool.close()


class _Pool:
    """Processes that run functions of test modules, by name."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._cases = 0
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def run(self, world: int, module: str, function: str, *args: Any) -> list[Any]:
        """What the function gives on each rank. An error of a rank is raised here."""
        if not self._processes:
            self._start()
        assert self._folder is not None
        self._cases += 1
        store = f"{self._folder.name}/{self._cases}"
        for rank, pipe in enumerate(self._pipes[:world]):
            pipe.send((rank, world, store, module, function, args))
        left = dict(enumerate(self._pipes[:world]))
        found: list[Any] = [None] * world
        errors: list[str] = []
        while left:
            ready = wait(list(left.values()), timeout=_DEADLINE)
            if not ready:
                errors.append(f"ranks {sorted(left)} did not end")
                break
            for rank in [r for r, pipe in left.items() if pipe in ready]:
                try:
                    is_error, value = left.pop(rank).recv()
                except EOFError:
                    is_error, value = True, f"rank {rank} died"
                if is_error:
                    errors.append(value)
                found[rank] = value
            if errors:
                break
        if errors:
            self.close()
            raise AssertionError("\n".join(errors))
        return found

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._folder = tempfile.TemporaryDirectory(prefix="silva-ranks-")
        for _ in range(self.most):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there,), daemon=True)
            process.start()
            there.close()
            self._processes.append(process)
            self._pipes.append(here)

    def close(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
        for pipe in self._pipes:
            pipe.close()
        self._processes, self._pipes = [], []
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _serve(pipe: Connection) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    while True:
        try:
            rank, world, store, module, function, args = pipe.recv()
        except EOFError:
            return
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        try:
            if world > 1:
                dist.init_process_group(
                    "gloo", init_method=f"file://{store}", rank=rank, world_size=world
                )
            made = getattr(importlib.import_module(module), function)(*args)
            pipe.send((False, made))
        except BaseException:  # noqa: BLE001 - the test shows whatever it was
            pipe.send((True, f"rank {rank}: {traceback.format_exc()}"))
            return
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
