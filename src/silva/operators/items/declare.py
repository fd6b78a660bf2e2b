"""The declaration of an operator on numbers, or on the items of lists."""

from __future__ import annotations

from collections.abc import Callable

from silva.columns import Column, Lists
from silva.operators.declare import column_operator
from silva.operators.items.arguments import Params
from silva.operators.items.ragged import as_given, dense, read_lists
from silva.plan.operator import Kernel

ItemKernel = Callable[[Column, Params], Column]


def item_operator(
    name: str, *, on_lists: bool = False, ids_to_ids: bool = False, keeps_masks: bool = True
) -> Callable[[ItemKernel], ItemKernel]:
    """Registers the decorated kernel, `kernel(column, params)`, as the operator `name`.

    - `on_lists`: `list.<…>` is the same operator on the items of each list.
    - `ids_to_ids`: it maps every whole number of 64 bits to such a number and never fails.
    - `keeps_masks`: items that are missing stay missing, also within a row.
    """
    facts = ["ids_to_ids"] if ids_to_ids else []
    kind, _, short = name.partition(".")
    register = column_operator(
        name,
        facts=facts,
        ragged=kind == "list",
        keeps_masks=keeps_masks,
        form=_of_one_column,
    )
    if not on_lists:
        return register
    register_on_lists = column_operator(
        f"list.{short}",
        facts=facts,
        ragged=True,
        keeps_masks=keeps_masks,
        form=lambda kernel: _of_one_column(_on_lists(kernel)),
    )
    return lambda kernel: register_on_lists(register(kernel))


def _of_one_column(kernel: ItemKernel) -> Kernel:
    """A kernel in the form that plans call."""

    def run(columns: list[Column], params: Params, draw: object) -> Column:
        return kernel(columns[0], params)

    return run


def _on_lists(kernel: ItemKernel) -> ItemKernel:
    """A kernel on items, as one on the items of lists."""

    def on_each(column: Column, params: Params) -> Column:
        arrays = dense(column)
        if arrays is not None:
            return kernel(arrays, params)
        lists = read_lists(column)
        made = Lists(kernel(lists.values, params), lists.offsets, lists.valid)
        return as_given(column, made)

    return on_each
