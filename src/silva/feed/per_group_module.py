"""The module that `sv.per_group` returns.

Its class needs torch at import, which `import silva` must not pay for, and a module-level name, so
that models are picklable. Hence a file of its own.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from silva.errors import PlanError
from silva.feed.per_group import call_once

_ACROSS_ROWS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class PerGroup(nn.Module):  # type: ignore[misc]
    """Runs `module` once for each distinct row; otherwise it behaves like `module`."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        if not isinstance(module, nn.Module):
            raise PlanError(f"per_group takes a torch module, not {module!r:.80}")
        for name, part in module.named_modules():
            if isinstance(part, _ACROSS_ROWS):
                raise PlanError(
                    f"per_group: {type(part).__name__} {name!r} computes across the rows of a "
                    "batch, and would see each distinct row once; use LayerNorm, or wrap only the "
                    "modules before it"
                )
        self.module = module

    def forward(self, *args: Any, **named: Any) -> Any:
        return call_once(self.module, *args, **named)

    # Checkpoints do not contain the wrapper.

    def state_dict(self, *args: Any, **named: Any) -> Any:
        return self.module.state_dict(*args, **named)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        for key in [key for key in state_dict if key.startswith(prefix)]:
            state_dict[f"{prefix}module.{key[len(prefix) :]}"] = state_dict.pop(key)
