"""One way to train a module on several devices."""

from __future__ import annotations

import math
from dataclasses import dataclass

from silva.errors import PlanError

SCHEDULES = ("gpipe", "1f1b", "interleaved")


@dataclass(frozen=True, order=True)
class Choice:
    """How a module is spread over devices. The product of the four degrees is their number."""

    dp: int = 1
    """Replicas, which reduce gradients."""
    fsdp: int = 1
    """Devices that share the parameters of a replica, gathered when they are used."""
    tp: int = 1
    """Devices that share the matrix products of a layer."""
    pp: int = 1
    """Stages of devices that a batch goes through."""
    microbatches: int = 1
    """Parts of a batch that are computed one after another."""
    schedule: str = "1f1b"
    """The order of microbatches in a pipeline: `gpipe`, `1f1b` or `interleaved`."""
    rounds: int = 1
    """Parts of the module that each stage of an interleaved schedule has."""
    recompute: bool = False
    """Whether activations are computed again in the backward pass, and not kept."""

    def __post_init__(self) -> None:
        for name in ("dp", "fsdp", "tp", "pp", "microbatches", "rounds"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise PlanError(f"{name} is {value!r}, and must be a whole number from 1 on")
        if self.schedule not in SCHEDULES:
            raise PlanError(f"schedule is {self.schedule!r}; there are {', '.join(SCHEDULES)}")
        if self.rounds > 1 and self.schedule != "interleaved":
            raise PlanError("rounds are for schedule='interleaved'")
        if self.schedule == "interleaved" and self.pp > 1 and self.microbatches % self.pp:
            raise PlanError(
                f"an interleaved schedule of {self.pp} stages needs a multiple of {self.pp} "
                f"microbatches, not {self.microbatches}"
            )

    @property
    def world(self) -> int:
        """The number of devices."""
        return math.prod((self.dp, self.fsdp, self.tp, self.pp))

    @property
    def readers(self) -> int:
        """The number of devices that read different rows."""
        return self.dp * self.fsdp

    @property
    def stages(self) -> int:
        """Parts that the module is cut into."""
        return self.pp * self.rounds

    def __str__(self) -> str:
        degrees = [
            f"{name}={n}" for name in ("dp", "fsdp", "tp", "pp") if (n := getattr(self, name)) > 1
        ]
        shown = " · ".join(degrees) or "one device"
        if self.pp > 1:
            rounds = f" × {self.rounds}" if self.rounds > 1 else ""
            shown += f", {self.schedule}{rounds}, {self.microbatches} microbatches"
        elif self.microbatches > 1:
            shown += f", {self.microbatches} microbatches"
        return shown + (", recomputing" if self.recompute else "")
