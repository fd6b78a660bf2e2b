"""A stage that is cut in two, on two pools: a task goes through one and then through the other.

Whoever finishes the first part of a task hands the second part on; nobody waits for it in between.
Where a part fails as a whole (rows that cannot be sent to a process, say), or a row fails in a
stage that has a form as written, the whole task is done once more in one piece: that is rare, and
the stage itself knows what to do then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from silva.physical.call import Worker
from silva.physical.cut import Cut, composed, given
from silva.physical.stage import Result, Stage
from silva.run.task import Pool, Task


@dataclass(frozen=True, eq=False)
class CutPool:
    cut: Cut
    first: Pool
    second: Pool
    whole: Pool
    """Where a task is done in one piece."""

    @property
    def width(self) -> int:
        return max(self.first.width, self.second.width)

    @property
    def ready(self) -> bool:
        return self.first.ready and self.second.ready

    @property
    def complete(self) -> bool:
        return self.first.complete and self.second.complete

    def submit(self, task: Task) -> None:
        first = Task(self.cut.first, task.payload, task.context)
        first.then = lambda: self._then(task, lambda: self._go_on(task, first))
        task.parts = [(first, self.first)]
        self.first.submit(first)

    def _then(self, task: Task, go_on: Callable[[], None]) -> None:
        """On the thread that finished a part."""
        if task.cancelled or task.done:
            return
        try:
            go_on()
        except Exception as error:  # noqa: BLE001  raised where the task is waited for
            task.finish(None, error)

    def _go_on(self, task: Task, first: Task) -> None:
        """The first part is done: on with the second."""
        results = first.results
        if results is None or _must_be_whole(task, results):
            self._in_one_piece(task)
            return
        if not results or any(result.moved for result in results):
            task.finish(results)  # what moved is done again, watched, by who waits for it
            return
        parts = [Task(self.cut.second, given(self.cut, r), task.context) for r in results]
        for part in parts:
            part.then = lambda: self._then(task, lambda: self._join(task, results, parts))
        if len(parts) == 1:
            parts[0].spot = task.spot  # not the first part's: they would share it
        task.parts = [(part, self.second) for part in parts]
        for part in parts:
            self.second.submit(part)

    def _join(self, task: Task, results: list[Result], parts: list[Task]) -> None:
        """A second part is done: with the last of them, the task is."""
        if not all(part.done for part in parts):
            return
        made = [part.results for part in parts]
        if any(found is None or _must_be_whole(task, found) for found in made):
            self._in_one_piece(task)
            return
        task.finish(
            [
                composed(self.cut, first, second)
                for first, found in zip(results, made, strict=True)
                for second in found or ()
            ]
        )

    def _in_one_piece(self, task: Task) -> None:
        again = Task(task.stage, task.payload, task.context)
        again.then = lambda: task.finish(again.results, again.error)
        task.parts = [(again, self.whole)]
        self.whole.submit(again)

    def wait(self, task: Task, on_idle: Callable[[float], None]) -> None:
        while not task.done:
            for part, pool in task.parts:
                pool.wait(part, on_idle)

    def help(self, task: Task, worker: Worker) -> None:
        for part, pool in task.parts:
            pool.help(part, worker)

    def race(self, task: Task) -> None:
        for part, pool in task.parts:
            pool.race(part)

    def use(self, count: int) -> None:
        self.first.use(count)
        self.second.use(count)

    def stacks(self) -> str:
        return "\n".join(filter(None, (self.first.stacks(), self.second.stacks())))

    def close(self) -> None:
        """The pools are not its own."""


def _must_be_whole(task: Task, results: list[Result]) -> bool:
    """Whether a row failed that might not in the order written, which only the whole stage has."""
    stage = task.stage
    has_form = isinstance(stage, Stage) and stage.written is not None
    return has_form and any(result.failures for result in results)
