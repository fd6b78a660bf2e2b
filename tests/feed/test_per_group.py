"""A wrapped module gives what it would have given for every row, and runs on distinct rows only."""

from __future__ import annotations

import copy
import io
import runpy
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

import silva as sv

torch = pytest.importorskip("torch")
nn = torch.nn

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "recommend.py"))
Recommender, step = EXAMPLE["Recommender"], EXAMPLE["step"]


def batches(unchanged: float, rows: int = 512) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same rows with every history, and with distinct ones."""
    log = EXAMPLE["log"](rows=rows, unchanged=unchanged)
    (every,) = log.batch(rows).loader(workers=0).to_torch()
    (distinct,) = log.batch(rows, grouped="hist").loader(workers=0).to_torch()
    return every, distinct


def model() -> Any:
    torch.manual_seed(0)
    return Recommender()


def gradients(of: Any) -> dict[str, Any]:
    found = {name: p.grad for name, p in of.named_parameters()}
    return {n: g.coalesce().to_dense() if g.is_sparse else g for n, g in found.items()}


@pytest.mark.parametrize("unchanged", [1.0, 0.9, 0.5, 0.0])
def test_loss_and_gradients_are_those_of_all_rows(unchanged: float) -> None:
    every, distinct = batches(unchanged)
    assert distinct["hist"].factor >= 1
    one, other = model(), model()
    assert abs(step(one, every) - step(other, distinct)) <= 1e-6
    for (name, ours), theirs in zip(gradients(other).items(), gradients(one).values(), strict=True):
        assert (ours - theirs).abs().max() <= 1e-6, name


def test_losses_stay_together_while_training_both_ways() -> None:
    losses: list[list[float]] = []
    for batch in batches(0.9):
        way = model()
        optimizer = torch.optim.SGD(way.parameters(), lr=0.1)
        losses.append([])
        for _ in range(4):
            losses[-1].append(float(step(way, batch)))
            optimizer.step()
    assert losses[0][-1] < losses[0][0]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


def test_where_nothing_repeats_the_results_are_equal_to_the_last_bit() -> None:
    every, distinct = batches(0.0)
    assert len(distinct["hist"].unique) == len(distinct["hist"])
    one, other = model(), model()
    assert torch.equal(step(one, every), step(other, distinct))
    for ours, theirs in zip(gradients(other).values(), gradients(one).values(), strict=True):
        assert torch.equal(ours, theirs)


class Seen(nn.Module):
    """Notes how many rows it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 3)
        self.rows: list[int] = []

    def forward(self, *columns: Any, scale: float = 1.0) -> Any:
        self.rows.append(len(columns[0]))
        return scale * self.inner(sum(columns))


def pair(inverse: list[int] | None = None) -> sv.Grouped:
    values = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    return sv.Grouped(values, None, torch.tensor(inverse or [0, 0, 1, 0]))


def test_the_module_sees_distinct_rows_only() -> None:
    seen = Seen()
    made = sv.per_group(seen)(pair(), scale=2.0)
    assert seen.rows == [2]
    torch.testing.assert_close(made, 2 * seen.inner(pair().expand()))


def test_columns_of_one_group_go_together_and_others_row_by_row() -> None:
    seen = Seen()
    both = sv.per_group(seen)
    torch.testing.assert_close(both(pair(), pair()), seen.inner(2 * pair().expand()))
    other = pair([0, 1, 1, 1])
    expected = seen.inner(pair().expand() + other.expand())
    torch.testing.assert_close(both(pair(), other), expected)
    torch.testing.assert_close(both(pair(), other.expand()), expected)
    assert seen.rows == [2, 4, 4]


def test_tensors_pass_through() -> None:
    seen = Seen()
    rows = pair().expand()
    assert torch.equal(sv.per_group(seen)(rows), seen.inner(rows))


Both = namedtuple("Both", "a b")


@pytest.mark.parametrize(
    "shape",
    [lambda x: (x, x), lambda x: [x], lambda x: {"a": x, "b": (x,)}, lambda x: Both(x, x)],
)
def test_several_results_are_all_expanded(shape: Any) -> None:
    class Several(nn.Module):
        def forward(self, x: Any) -> Any:
            return shape(x)

    made, expected = sv.per_group(Several())(pair()), shape(pair().expand())
    assert type(made) is type(expected)
    torch.testing.assert_close(made, expected)


def test_lists_of_any_length_are_expanded() -> None:
    class Same(nn.Module):
        def forward(self, x: Any) -> Any:
            return x

    hist = sv.Grouped(torch.tensor([5, 6, 7]), torch.tensor([0, 2, 3]), torch.tensor([0, 0, 1]))
    made = sv.per_group(Same())(hist)
    assert [row.tolist() for row in made] == [[5, 6], [5, 6], [7]]


def test_a_result_that_is_not_one_a_row_is_refused() -> None:
    class Mean(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.mean()

    with pytest.raises(sv.ColumnError, match="one result per row"):
        sv.per_group(Mean())(pair())


def test_modules_that_look_across_rows_are_refused() -> None:
    with pytest.raises(sv.PlanError, match="BatchNorm1d '1' computes across the rows"):
        sv.per_group(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    with pytest.raises(sv.PlanError, match="torch module"):
        sv.per_group(len)


def test_checkpoints_fit_with_and_without_the_wrapping() -> None:
    plain = nn.ModuleDict({"pool": nn.Linear(2, 3), "head": nn.Linear(3, 1)})
    wrapped = copy.deepcopy(plain)
    wrapped["pool"] = sv.per_group(wrapped["pool"])
    assert list(wrapped.state_dict()) == list(plain.state_dict())
    for p in plain.parameters():
        nn.init.ones_(p)
    wrapped.load_state_dict(plain.state_dict())
    assert wrapped["pool"](pair()).tolist() == plain["pool"](pair().expand()).tolist()
    plain.load_state_dict(wrapped.state_dict())
    saved = io.BytesIO()
    torch.save(wrapped, saved)
    saved.seek(0)
    again = torch.load(saved, weights_only=False)
    assert torch.equal(again["pool"](pair()), wrapped["pool"](pair()))
    with pytest.raises(RuntimeError, match="Missing key"):
        wrapped.load_state_dict({})
