"""The code that runs in a Ray actor: it is sent each stage once, and inputs one by one.

silva pickles messages itself, with buffers out of band: Ray puts the buffers into its object store
as they are, and the reader decides whether to copy them. For a trainer on the same node they are
put into memory that it shares with the actor (`buffers`).
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import traceback
from typing import Any

import ray

from silva.run.pools.channel import Message, seal
from silva.run.pools.processes import ONE_THREAD
from silva.run.pools.worker import portable, unsendable
from silva.run.ray.buffers import OpenFile, Packer, Parcel
from silva.run.shared.shared_memory import FreeBuffer, SharedBuffer


class Actor:
    """One worker of a `RayPool`, in a process of Ray's."""

    def __init__(self, path: list[str]) -> None:
        """`path` is the driver's module path; that of this machine comes first."""
        from silva.physical.stage.call import Worker
        from silva.run.shared.allocator import keep_freed_memory

        sys.path.extend(folder for folder in path if folder not in sys.path)
        os.environ.update(ONE_THREAD)
        keep_freed_memory()
        self._worker = Worker(shares_generators=False)
        self._stages: dict[int, Any] = {}
        self._packer = Packer()

    def where(self) -> tuple[str, int, OpenFile | None]:
        """The node, the process id, and a file that shows whether the driver can open its
        memory."""
        return ray.get_runtime_context().get_node_id(), os.getpid(), self._packer.proof

    @ray.method(concurrency_group="looks")  # type: ignore[untyped-decorator]
    def draining(self) -> set[str]:
        """The nodes that are being drained."""
        from ray._private.state import state

        return set(state.get_draining_nodes())

    def learn(self, number: int, pickled: bytes) -> None:
        """Stores a stage; it is unpickled later, where an error can be returned."""
        self._stages[number] = pickled

    def run(
        self, number: int, message: Message, freed: list[FreeBuffer] | None = None
    ) -> Message | Parcel:
        """Runs a stage on an input and returns (results, None) or (None, error), in shared memory
        if `freed` lists the shared buffers that are free again."""
        shared = None if freed is None else self._packer.shared_buffer(freed)
        answer = self._answer(number, message, shared)
        return answer if shared is None else self._packer.pack(answer, shared)

    def _answer(self, number: int, message: Message, shared: SharedBuffer | None) -> Message:
        from silva.columns import empty
        from silva.run.pools.task import execute

        stage = self._stages[number]
        try:
            if isinstance(stage, bytes):
                stage = self._stages[number] = pickle.loads(stage)  # noqa: S301  from our own driver
            payload, context = message.load()
            allocate = empty if shared is None else shared.allocate
            results = execute(stage, payload, context, self._worker, allocate)
        except BaseException as error:  # noqa: BLE001  raised again in the driver
            return seal((None, portable(error)))
        try:
            return seal((results, None))
        except BaseException as error:  # noqa: BLE001  a result that cannot be pickled, for any reason
            return seal((None, portable(unsendable(stage, error))))

    @ray.method(concurrency_group="looks")  # type: ignore[untyped-decorator]
    def stacks(self) -> str:
        """The stack traces of its threads."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        mine = threading.get_ident()
        return "\n".join(
            f"{names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}"
            for ident, frame in sys._current_frames().items()
            if ident != mine
        )
