"""The module that `sv.per_group` makes; in a file of its own, because it needs torch to exist."""

from __future__ import annotations

from typing import Any

from torch import nn

from silva.errors import PlanError
from silva.feed.per_group import call_once

_ACROSS_ROWS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class PerGroup(nn.Module):  # type: ignore[misc]
    """Runs `module` once for each distinct row; for everything else, it is `module`."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        if not isinstance(module, nn.Module):
            raise PlanError(f"per_group takes a torch module, not {module!r:.80}")
        for name, part in module.named_modules():
            if isinstance(part, _ACROSS_ROWS):
                raise PlanError(
                    f"per_group: {type(part).__name__} {name!r} looks across the rows of a batch, "
                    "so it would see each distinct row once; use LayerNorm, or wrap what comes "
                    "before it"
                )
        self.module = module

    def forward(self, *args: Any, **named: Any) -> Any:
        return call_once(self.module, *args, **named)

    # Checkpoints do not know of the wrapping.

    def state_dict(self, *args: Any, **named: Any) -> Any:
        return self.module.state_dict(*args, **named)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        for key in [key for key in state_dict if key.startswith(prefix)]:
            state_dict[f"{prefix}module.{key[len(prefix) :]}"] = state_dict.pop(key)
