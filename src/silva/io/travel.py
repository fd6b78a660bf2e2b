"""How a source is pickled for a worker: its fields, and a few facts that it has found so far.

What a `cached_property` holds (open files, footers, memory maps) is not pickled, unless its name is
in `carried`: small facts that took a read from disk, and on which parent and worker must agree.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar


class Travels:
    carried: ClassVar[tuple[str, ...]] = ()
    """The names of cached properties that are pickled once they have been computed."""

    def __getstate__(self) -> dict[str, Any]:
        assert dataclasses.is_dataclass(self)
        names = [field.name for field in dataclasses.fields(self)]
        names += [name for name in self.carried if name in self.__dict__]
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
