"""What runs in a Ray actor: stages that it was sent once, on inputs that come one by one.

Messages are pickled by silva and not by Ray, buffers apart: Ray puts these into its object store as
they are, and who reads them there decides what becomes of them. For a trainer on the same node they
are put into memory that it shares with the actor (`run.parcels`).
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import traceback
from typing import Any

import ray

from silva.run.channel import Message, seal
from silva.run.parcels import Packer, Parcel
from silva.run.processes import ONE_THREAD
from silva.run.segments import Place, Segment
from silva.run.worker import portable


class Actor:
    """One worker of a `RayPool`, in a process of Ray's."""

    def __init__(self, path: list[str]) -> None:
        """`path` is where the driver finds modules: those of this machine come first."""
        from silva.physical.call import Worker
        from silva.run.freed import keep_freed_memory

        sys.path.extend(folder for folder in path if folder not in sys.path)
        os.environ.update(ONE_THREAD)
        keep_freed_memory()
        self._worker = Worker(shares_generators=False)
        self._stages: dict[int, Any] = {}
        self._packer = Packer()

    def where(self) -> tuple[str, int, Place | None]:
        """The node, the process, and a file by which to see whether its memory can be read."""
        return ray.get_runtime_context().get_node_id(), os.getpid(), self._packer.proof

    @ray.method(concurrency_group="looks")  # type: ignore[untyped-decorator]
    def draining(self) -> set[str]:
        """The nodes that are about to end, as far as the cluster was told."""
        from ray._private.state import state

        return set(state.get_draining_nodes())

    def learn(self, number: int, pickled: bytes) -> None:
        """Takes note of a stage; it is built where an error can be answered."""
        self._stages[number] = pickled

    def run(
        self, number: int, message: Message, freed: list[int] | None = None
    ) -> Message | Parcel:
        """What a stage makes of an input: (results, None), or (None, an error). Shared memory is
        used where it is said what of it is free."""
        segment = None if freed is None else self._packer.segment(freed)
        answer = self._answer(number, message, segment)
        return answer if segment is None else self._packer.pack(answer, segment)

    def _answer(self, number: int, message: Message, segment: Segment | None) -> Message:
        from silva.columns import empty
        from silva.run.task import execute

        stage = self._stages[number]
        try:
            if isinstance(stage, bytes):
                stage = self._stages[number] = pickle.loads(stage)  # noqa: S301  from our own driver
            payload, context = message.load()
            allocate = empty if segment is None else segment.allocate
            results = execute(stage, payload, context, self._worker, allocate)
        except BaseException as error:  # noqa: BLE001  raised again in the driver
            return seal((None, portable(error)))
        try:
            return seal((results, None))
        except Exception as error:  # noqa: BLE001  a result that cannot be pickled, for whatever reason
            text = f"a result of `{stage.label}` cannot be sent back to the loader: {error}"
            return seal((None, portable(TypeError(text))))

    @ray.method(concurrency_group="looks")  # type: ignore[untyped-decorator]
    def stacks(self) -> str:
        """What its threads are doing right now."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        mine = threading.get_ident()
        return "\n".join(
            f"{names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}"
            for ident, frame in sys._current_frames().items()
            if ident != mine
        )
