"""Exports an unmodified module as a flat graph of operators.

The batch is any pytree of tensors, and the output is reduced to the tensors in it: caches and other
objects are left out, and the output that a loss gets has None in their place. Dimensions of the
batch stay open where the module allows it, so that one graph serves all sizes.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, fx, nn

from silva.errors import PlanError

Caller = Callable[[nn.Module, Any], Any]
"""Calls a module with a batch."""


class CannotTrace(PlanError):
    """A module that does not export; the message says why."""


@dataclass(frozen=True)
class Leaves:
    """The tensors of an output, and how to put them back into its form."""

    spec: pytree.TreeSpec
    is_tensor: tuple[bool, ...]

    def put_back(self, tensors: Sequence[Tensor]) -> Any:
        """The output with these tensors, and None where something else was."""
        left = iter(tensors)
        leaves = [next(left) if tensor else None for tensor in self.is_tensor]
        return pytree.tree_unflatten(leaves, self.spec)


@dataclass(frozen=True, eq=False)
class Traced:
    """A module as a flat graph."""

    graph: fx.Graph
    """Placeholders are parameters, buffers, constants and the leaves of the batch."""
    states: Mapping[str, str]
    """The name of the parameter or buffer that a placeholder stands for."""
    constants: Mapping[str, Any]
    """The tensors that placeholders stand for which are neither."""
    inputs: Mapping[str, int]
    """The leaf of the batch that a placeholder stands for."""
    leaves: Leaves
    tied: Mapping[str, str] = field(default_factory=dict)
    """Names of parameters that are the same tensor as another one, and the name of that."""
    dynamic: bool = True
    """Whether sizes of the batch are open."""

    @property
    def output(self) -> fx.Node:
        return next(node for node in reversed(self.graph.nodes) if node.op == "output")

    def fingerprint(self) -> str:
        """A digest of the operators and their arguments."""
        text = "\n".join(f"{n.op} {n.target} {n.args} {n.kwargs}" for n in self.graph.nodes)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def caller(model: nn.Module, inputs: Mapping[str, str] | None = None) -> Caller:
    """Calls a module with the columns that are named after the parameters of its `forward`;
    `inputs` names a column for a parameter."""
    given = dict(inputs or {})
    parameters = inspect.signature(model.forward).parameters
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name in given:
        if name not in parameters and not open_ended:
            raise PlanError(
                f"inputs= names the parameter {name!r}, and {type(model).__name__}.forward has "
                f"{', '.join(parameters)}"
            )
    needed = [
        name
        for name, p in parameters.items()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]

    def call(module: nn.Module, batch: Any) -> Any:
        if isinstance(batch, Tensor):
            return module(batch)
        if not isinstance(batch, Mapping):
            return module(*batch)
        chosen = {
            name: batch[given.get(name, name)]
            for name in parameters
            if given.get(name, name) in batch
        }
        missing = [name for name in needed if name not in chosen]
        if missing:
            raise PlanError(
                f"{type(module).__name__}.forward needs {', '.join(missing)}, and the batch has "
                f"{', '.join(map(str, batch))}: name the columns, inputs={{{missing[0]!r}: …}}, or "
                "pass call=lambda model, batch: …"
            )
        return module(**chosen)

    return call


class _Flat(nn.Module):
    """A module that takes a batch and gives the tensors of its output."""

    def __init__(self, model: nn.Module, call: Caller, seen: list[Leaves]) -> None:
        super().__init__()
        self.model, self._run = model, functools.partial(_run, call=call, seen=seen)

    def forward(self, batch: Any) -> tuple[Tensor, ...]:
        return self._run(self.model, batch)


def _run(model: nn.Module, batch: Any, *, call: Caller, seen: list[Leaves]) -> tuple[Tensor, ...]:
    """The tensors of the output; its form goes into `seen`, since export keeps no attributes."""
    found, spec = pytree.tree_flatten(call(model, batch))
    seen[:] = [Leaves(spec, tuple(isinstance(leaf, Tensor) for leaf in found))]
    return tuple(leaf for leaf in found if isinstance(leaf, Tensor))


def tensors_of(output: Any) -> tuple[Any, Leaves]:
    """An output as a module without a graph gives it, with None in place of what is no tensor."""
    found, spec = pytree.tree_flatten(output)
    leaves = Leaves(spec, tuple(isinstance(leaf, Tensor) for leaf in found))
    return leaves.put_back([leaf for leaf in found if isinstance(leaf, Tensor)]), leaves


def trace(model: nn.Module, batch: Any, call: Caller) -> Traced:
    """The flat graph of a module, as it is in its present mode (train or eval).

    Raises `CannotTrace` with the reason for a module that does not export.
    """
    seen: list[Leaves] = []
    flat = _Flat(model, call, seen)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program, dynamic = _export(flat, batch)
        except PlanError:
            raise
        except Exception as error:
            raise CannotTrace(_reason(error)) from error
    return _traced(program, model, seen[0], dynamic)


def _export(flat: _Flat, batch: Any) -> tuple[torch.export.ExportedProgram, bool]:
    """With open sizes where possible, else with those of the batch."""
    auto = torch.export.Dim.AUTO

    def open_sizes(leaf: Any) -> Any:
        return dict.fromkeys(range(leaf.dim()), auto) if isinstance(leaf, Tensor) else None

    state = torch.random.get_rng_state()
    try:
        shapes = pytree.tree_map(open_sizes, (batch,))
        return torch.export.export(flat, (batch,), dynamic_shapes=shapes, strict=False), True
    except Exception:  # noqa: BLE001 - the second try says what is wrong
        return torch.export.export(flat, (batch,), strict=False), False
    finally:
        torch.random.set_rng_state(state)


def _traced(
    program: torch.export.ExportedProgram, model: nn.Module, leaves: Leaves, dynamic: bool
) -> Traced:
    for node in list(program.graph.nodes):
        if node.op == "call_function" and "assert" in str(node.target):
            program.graph.erase_node(node)  # it holds a dtype that mixed precision changes
    kinds = torch.export.graph_signature.InputKind
    states: dict[str, str] = {}
    constants: dict[str, Any] = {}
    inputs: dict[str, int] = {}
    first: dict[int, str] = {}
    tied: dict[str, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        owner = first.setdefault(id(parameter), name)
        if owner != name:
            tied[name] = owner
    for spec in program.graph_signature.input_specs:
        name = str(getattr(spec.arg, "name", ""))
        if spec.kind in (kinds.PARAMETER, kinds.BUFFER):
            state = str(spec.target).removeprefix("model.")
            states[name] = tied.get(state, state)
        elif spec.kind == kinds.USER_INPUT:
            inputs[name] = len(inputs)
        else:
            constants[name] = program.constants[str(spec.target)]
    for node in program.graph.nodes:
        if node.op == "get_attr":  # the body of a region without gradients, or in another precision
            constants[node.name] = getattr(program.graph_module, str(node.target))
    return Traced(program.graph, states, constants, inputs, leaves, tied, dynamic)


def _reason(error: Exception) -> str:
    """The first line of what stopped the export that says something."""
    known = {
        "GuardOnDataDependentSymNode": "its control flow depends on the values of tensors",
        "UserError": "its control flow depends on the values of tensors",
    }
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[0] if lines else type(error).__name__
    named = known.get(type(error).__name__)
    return f"{named} ({said[:160]})" if named else f"{type(error).__name__}: {said[:200]}"
