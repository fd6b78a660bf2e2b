"""A small network that classifies crops of two photographs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from silva.errors import SilvaError

SEED = 0


@dataclass
class Learner:
    """A network and its optimizer."""

    network: Any
    optimizer: Any

    def step(self, batch: dict[str, Any]) -> float:
        """Trains on one batch and returns the loss before the step."""
        import torch

        self.network.train()
        loss = torch.nn.functional.cross_entropy(self.network(batch["image"]), batch["label"])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def accuracy(self, batches: Iterable[dict[str, Any]]) -> tuple[int, int]:
        """Returns the number of correct photos and of all photos, without padded rows."""
        import torch

        self.network.eval()
        right = total = 0
        with torch.no_grad():
            for batch in batches:
                guess = self.network(batch["image"]).argmax(dim=1)
                right += int(((guess == batch["label"]) & batch["mask"]).sum())
                total += int(batch["mask"].sum())
        return right, total

    def state_dict(self) -> dict[str, Any]:
        return {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])


def new_learner() -> Learner:
    """Returns an untrained network, the same every time."""
    try:
        import torch
    except ImportError:
        raise SilvaError("silva demo needs torch: pip install scikit-learn torch") from None
    from torch import nn

    torch.manual_seed(SEED)
    widths = (3, 12, 24, 48)
    layers: list[Any] = []
    for before, after in pairwise(widths):
        layers += [nn.Conv2d(before, after, 3, stride=2), nn.BatchNorm2d(after), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 2)]
    network = nn.Sequential(*layers)
    return Learner(network, torch.optim.AdamW(network.parameters(), lr=3e-3))


@contextmanager
def one_thread() -> Iterator[None]:
    """Limits torch to one thread: the network is small, and the loader can use the other cores."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
