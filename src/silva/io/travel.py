"""How a source travels to a worker: as its fields, and the little that it has found out so far.

What a `cached_property` holds (open files, footers, maps) stays at home, unless its name is among
`carried`: small facts that cost a look at the disk, and that parent and worker must agree on.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar


class Travels:
    carried: ClassVar[tuple[str, ...]] = ()
    """Names of cached properties that travel once they have been computed."""

    def __getstate__(self) -> dict[str, Any]:
        assert dataclasses.is_dataclass(self)
        names = [field.name for field in dataclasses.fields(self)]
        names += [name for name in self.carried if name in self.__dict__]
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
