"""Trains a recommender on a log in which histories repeat: on all rows, and on distinct rows.

Most rows of a session have the same history. `batch(grouped="hist")` holds each distinct history
once, and `sv.per_group` runs the part of the model that reads it once per distinct history. This is
the only line that differs. The losses are the same.

Run it: `python examples/recommend.py`
"""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import silva as sv

ITEMS = 50_000
LENGTH = 50
BATCH = 1024


class History(nn.Module):
    """Turns a history into one vector: embeddings, pooled by attention."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.items = nn.Embedding(ITEMS, width, sparse=True)
        self.key = nn.Linear(width, width)
        self.query = nn.Parameter(torch.randn(width) / width**0.5)

    def forward(self, hist: Tensor) -> Tensor:
        items = self.items(hist)
        weights = torch.softmax(torch.tanh(self.key(items)) @ self.query, dim=1)
        return torch.einsum("bl,blw->bw", weights, items)


class Recommender(nn.Module):
    """Predicts a click from a history, a candidate and numbers about both."""

    def __init__(self, width: int = 64, numbers: int = 8) -> None:
        super().__init__()
        self.history = sv.per_group(History(width))  # the only line that differs
        self.candidate = nn.Embedding(ITEMS, width, sparse=True)
        self.click = nn.Sequential(
            nn.Linear(3 * width + numbers, 128), nn.ReLU(), nn.Linear(128, 1)
        )

    def forward(self, hist: Any, item: Tensor, numbers: Tensor) -> Tensor:
        user, candidate = self.history(hist), self.candidate(item)
        both = torch.cat([user, candidate, user * candidate, numbers], dim=1)
        return self.click(both).squeeze(1)


def log(rows: int, session: int = 16, unchanged: float = 0.9, seed: int = 0) -> sv.Pipeline:
    """Returns rows in the order of sessions; a history repeats with probability `unchanged`."""
    rng = np.random.default_rng(seed)
    changes = rng.random(rows) >= unchanged
    changes[::session] = True
    index = np.cumsum(changes) - 1
    histories = rng.zipf(1.2, (int(index[-1]) + 1, LENGTH)) % ITEMS
    item = rng.zipf(1.2, rows) % ITEMS
    return sv.from_columns(
        {
            "hist": histories[index],
            "item": item,
            "numbers": rng.normal(size=(rows, 8)).astype(np.float32),
            "click": ((item + histories[index, 0]) % 2).astype(np.float32),
        }
    )


def step(model: Recommender, batch: dict[str, Any]) -> Tensor:
    """Returns the loss of a batch and leaves the gradients in the model."""
    model.zero_grad(set_to_none=True)
    predicted = model(batch["hist"], batch["item"], batch["numbers"])
    loss = nn.functional.binary_cross_entropy_with_logits(predicted, batch["click"])
    loss.backward()
    return loss.detach()


def train(batches: list[dict[str, Any]], epochs: int) -> Iterator[tuple[float, float]]:
    """Yields the loss and the seconds of each step."""
    torch.manual_seed(0)
    model = Recommender()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for batch in batches * epochs:
        began = time.perf_counter()
        loss = step(model, batch)
        optimizer.step()
        yield loss.item(), time.perf_counter() - began


def main() -> None:
    rows = log(rows=4 * BATCH)
    ways = {
        "all rows": list(rows.batch(BATCH).loader().to_torch()),
        "distinct rows": list(rows.batch(BATCH, grouped="hist").loader().to_torch()),
    }
    seconds, losses = {}, {}
    for name, batches in ways.items():
        found = list(train(batches, epochs=3))
        losses[name] = [loss for loss, _ in found]
        seconds[name] = float(np.median([spent for _, spent in found]))
        print(f"{name:13}  last loss {losses[name][-1]:.6f}, {seconds[name] * 1e3:.0f} ms per step")
    difference = np.abs(np.subtract(*losses.values())).max()
    print(f"{ways['distinct rows'][0]['hist'].factor:.1f} rows per distinct history")
    print(f"losses differ by at most {difference:.0e}")
    print(f"a step is {seconds['all rows'] / seconds['distinct rows']:.1f} times as fast")


if __name__ == "__main__":
    main()
