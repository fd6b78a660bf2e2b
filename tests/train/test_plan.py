"""Plans are chosen by the simulator, explain themselves, and never lose to the default."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
from tests.train.models import MODELS, loss, make
from torch import Tensor, nn

import silva as sv
from silva.cost.simulate import Resource, Task, simulate
from silva.fabric.topology import Device, Link, Topology
from silva.train.choice import Choice
from silva.train.graph.groups import find_groups, products
from silva.train.graph.trace import CannotTrace, caller, trace
from silva.train.planning.candidates import Limits, candidates
from silva.train.planning.module import look
from silva.train.planning.schedule import most_in_flight, schedule


def gpus(count: int, memory: int | None = None, bandwidth: float = 1e10) -> Topology:
    devices = tuple(
        Device(f"gpu{i}", "a", kind="A100", memory=memory, flops={"float32": 1e13})
        for i in range(count)
    )
    return Topology(devices, (Link("a", "a", 1e-5, bandwidth),))


def test_the_candidates_are_all_that_divide() -> None:
    limits = Limits(8, 99, frozenset({1, 2}), True, {})
    found = list(candidates(4, limits))
    assert all(one.world == 4 for one in found)
    assert len(found) == len(set(found))
    assert {(one.dp, one.fsdp, one.tp, one.pp) for one in found} == {
        (4, 1, 1, 1), (2, 2, 1, 1), (1, 4, 1, 1), (2, 1, 2, 1), (1, 2, 2, 1), (2, 1, 1, 2),
        (1, 2, 1, 2), (1, 1, 2, 2), (1, 1, 1, 4),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("choice", "order"),
    [
        (Choice(pp=2, microbatches=3, schedule="gpipe"), ["F F F B B B", "F F F B B B"]),
        (Choice(pp=2, microbatches=3), ["F F B F B B", "F B F B F B"]),
    ],
)
def test_schedules_are_those_of_their_names(choice: Choice, order: list[str]) -> None:
    assert [" ".join(a.kind for a in one) for one in schedule(choice)] == order


@pytest.mark.parametrize("pp", [2, 4])
@pytest.mark.parametrize("count", [4, 8])
@pytest.mark.parametrize("name", ["gpipe", "interleaved"])
def test_schedules_are_those_of_torch(pp: int, count: int, name: str) -> None:
    from torch.distributed.pipelining import schedules

    rounds = 2 if name == "interleaved" else 1
    ours = schedule(Choice(pp=pp, microbatches=count, schedule=name, rounds=rounds))
    kind = {"gpipe": schedules.ScheduleGPipe,
            "interleaved": schedules.ScheduleInterleaved1F1B}[name]  # fmt: skip
    made = object.__new__(kind)
    made._num_stages, made._n_microbatches = pp * rounds, count
    made.pp_group_size, made.n_local_stages = pp, rounds
    if name == "interleaved":
        made.number_of_rounds = max(1, count // pp)
        made.microbatches_per_round = count // made.number_of_rounds
        theirs = {rank: made._calculate_single_rank_operations(rank) for rank in range(pp)}
    else:
        theirs = made._get_pipeline_order()
    for rank, mine in enumerate(ours):
        kinds = {"FORWARD": "F", "FULL_BACKWARD": "B"}
        acts = [a for a in theirs[rank] if a is not None and a.computation_type.name in kinds]
        found = [(kinds[a.computation_type.name], a.stage_index, a.microbatch_index) for a in acts]
        assert found == [tuple(a) for a in mine]


def test_fewer_activations_are_kept_by_1f1b() -> None:
    gpipe = schedule(Choice(pp=4, microbatches=8, schedule="gpipe"))[0]
    assert most_in_flight(gpipe) == {0: 8}
    assert most_in_flight(schedule(Choice(pp=4, microbatches=8))[0]) == {0: 4}


@pytest.mark.parametrize("name", ["gpt2", "encoder", "resnet"])
def test_a_plan_explains_itself(name: str) -> None:
    model, batch = make(name)
    plan = sv.train.plan(model, batch, loss=loss, on=gpus(4))
    text = plan.explain()
    assert "Candidates" in text
    assert "default" in text
    assert plan.choice.world == 4
    best = plan.price
    assert best is not None
    fitting = [p for p in plan.defaults if p.fits]
    assert all(best.seconds <= p.seconds for p in fitting)
    assert plan.simulate().makespan == pytest.approx(best.seconds, rel=0.5)


def test_a_plan_that_is_not_a_tenth_faster_is_not_used() -> None:
    model, batch = make("encoder")
    plan = sv.train.plan(model, batch, loss=loss, on=gpus(2, bandwidth=1e15))
    assert plan.choice in (Choice(dp=2), Choice(fsdp=2)) or (
        plan.price is not None and plan.defaults[0].seconds > 1.1 * plan.price.seconds
    )


def test_memory_decides() -> None:
    model, batch = make("gpt2")
    held = sum(p.numel() * 4 for p in model.parameters())
    plan = sv.train.plan(model, batch, loss=loss, on=gpus(4), memory=held * 3)
    assert plan.price is not None
    assert plan.price.memory <= held * 3
    with pytest.raises(sv.PlanError, match="no way to train the module on 4 devices fits"):
        sv.train.plan(model, batch, loss=loss, on=gpus(4), memory=1000)


def test_what_is_required_and_kept() -> None:
    model, batch = make("encoder")
    plan = sv.train.plan(model, batch, loss=loss, on=gpus(4))
    assert plan.require(pp=2).choice.pp == 2
    assert plan.require(tp=2, pp=1).choice.tp == 2
    kept = plan.require(tp=2).keep("encoder.layers.*.self_attn.*", tp=False)
    names = {kept.module.traced.states[n] for g in kept.module.groups[2].groups for n in g.names}
    assert names
    assert not any("self_attn" in name for name in names)
    with pytest.raises(sv.PlanError, match="is not known"):
        plan.require(zz=2)
    with pytest.raises(sv.PlanError, match="no parameter matches"):
        plan.keep("nothing", tp=False)


def test_a_saved_plan_is_loaded(tmp_path: Path) -> None:
    model, batch = make("encoder")
    plan = sv.train.plan(model, batch, loss=loss, on=gpus(4)).require(tp=2, pp=2)
    loaded = sv.train.load(plan.save(tmp_path / "plan.json"), model, batch, loss=loss, on=gpus(4))
    assert loaded.choice == plan.choice
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(sv.PlanError, match="is no plan"):
        sv.train.load(tmp_path / "plan.json", model, batch, loss=loss)


class Depends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) if x.sum() > 0 else self.linear(-x)


def test_a_module_that_does_not_export_is_data_parallel_only() -> None:
    batch = {"x": torch.randn(8, 64)}
    with pytest.raises(CannotTrace, match="control flow depends on the values"):
        trace(Depends(), batch, caller(Depends()))
    plan = sv.train.plan(Depends(), batch, loss=loss, on=gpus(2))
    assert plan.choice == Choice(dp=2)
    assert "Only data parallelism is possible" in plan.explain()


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "t5", "encoder"])
def test_nearly_all_weights_can_be_sharded(name: str) -> None:
    model, batch = make(name)
    traced = trace(model, batch, caller(model))
    found = find_groups(traced, 2)
    every = {traced.states[p.weight.name] for p in products(traced).values()}
    sharded = {traced.states[n] for g in found.groups for n in g.names}
    assert sharded <= every
    assert len(every - sharded) <= 2  # the head, and an embedding that it shares


def test_heads_that_do_not_divide_are_kept_whole() -> None:
    model, batch = make("llama")  # two key/value heads
    traced = trace(model, batch, caller(model))
    found = find_groups(traced, 4)
    names = {traced.states[n] for g in found.groups for n in g.names}
    assert not any("k_proj" in name or "q_proj" in name for name in names)
    assert any("gate_proj" in name for name in names)


def test_frozen_parameters_and_adapters_are_planned() -> None:
    model, batch = make("encoder")
    for parameter in model.encoder.parameters():
        parameter.requires_grad_(False)
    assert look(model, batch).cuts is not None
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(sv.PlanError, match="nothing to train"):
        look(model, batch)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda m, b: sv.train.plan(m, b, loss=loss, on="here"), "takes an sv.Topology"),
        (lambda m, b: sv.train.plan(m, b, loss=3), "loss"),
        (lambda m, b: sv.train.plan(m, b, loss=loss, global_batch=0), "global_batch"),
        (lambda m, b: sv.train.plan(m, {"y": b["x"]}, loss=loss), "needs x"),
        (lambda m, b: sv.train.plan(m, b, loss=loss, inputs={"q": "x"}), "names the parameter 'q'"),
        (lambda m, b: sv.train.plan(3, b, loss=loss), "takes a torch module"),
    ],
)
def test_wrong_arguments_are_refused(wrong: object, said: str) -> None:
    model, batch = make("encoder")
    with pytest.raises(sv.PlanError, match=said):
        wrong(model, batch)  # type: ignore[operator]


@pytest.mark.rest
def test_planning_is_quick() -> None:
    """For 8 devices in less than 30 s, and for 1,024 in less than 2 minutes of one core."""
    model, batch = make("gpt2")
    batch = {name: value.repeat(128, 1) for name, value in batch.items()}
    for count, most in ((8, 30.0), (1024, 120.0)):
        began = time.process_time()
        plan = sv.train.plan(model, batch, loss=loss, on=gpus(count))
        assert plan.choice.world == count
        assert time.process_time() - began < most


def test_the_simulator_runs_a_pipeline_as_computed_by_hand() -> None:
    tasks = [Task(f"F{i}", [{"a": 1.0}]) for i in range(2)]
    assert simulate([Resource("a")], tasks).makespan == 2.0


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_traced_with_no_line_changed(name: str) -> None:
    model, batch = make(name)
    module = look(model, batch)
    assert module.why_not is None
    assert module.cuts
