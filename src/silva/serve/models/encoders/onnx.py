"""Transformers in ONNX files, run by onnxruntime on one thread."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from silva.errors import SilvaError

_TYPES = b"DynamicQuantizeLinear"
"""The operator of ONNX that rounds by the range of a whole batch."""


def transformer(path: Path) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """From tokens and masks to the vectors of each token: the first output of the graph."""
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        raise SilvaError(
            f'{str(path)!r} is run by onnxruntime: pip install "silva[onnx]"'
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        raise SilvaError(f"{str(path)!r} cannot be loaded: {error}") from error
    takes = [one.name for one in session.get_inputs()]
    unknown = [name for name in takes if name not in _INPUTS]
    if unknown:
        raise SilvaError(f"{str(path)!r} takes {unknown[0]!r}, which silva does not know")

    def run(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        found: np.ndarray = session.run(None, {name: given[name] for name in takes})[0]
        if found.ndim != 3:
            raise SilvaError(f"{str(path)!r} returns {found.ndim} dimensions, not one per token")
        return found

    return run


_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def batches_change_bits(path: Path) -> bool:
    """Whether the graph rounds by the range of a whole batch, so that texts must come alone."""
    return _TYPES in path.read_bytes()
