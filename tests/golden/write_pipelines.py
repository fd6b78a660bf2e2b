"""Writes `pipelines-0.1.jsonl`: run once, by silva 0.1, whose fingerprints and states every later
silva keeps.

PYTHONPATH=<a checkout of 0.1>/src python tests/golden/write_pipelines.py
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tokenizers

import silva as sv

sys.path.insert(0, str(Path(__file__).parent))
from golden_pipelines import PIPELINES, contents

FILE = Path(__file__).with_name("pipelines-0.1.jsonl")


def versions() -> dict[str, str]:
    """What fingerprints of functions depend on beside silva."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {
        "python": python,
        "numpy": np.__version__,
        "pyarrow": pa.__version__,
        "tokenizers": tokenizers.__version__,
    }


def digest(batch: Any) -> str:
    return hashlib.blake2b(repr(contents(batch)).encode(), digest_size=8).hexdigest()


def golden(pipeline: sv.Pipeline) -> dict[str, Any]:
    loader = pipeline.loader(backend="inline")
    states, batches = [loader.state_dict()], []
    for batch in loader:
        batches.append(digest(batch))
        states.append(json.loads(json.dumps(loader.state_dict())))
    kept = sorted({0, 1, len(batches) // 2, len(batches) - 1})
    return {
        "fingerprint": pipeline.fingerprint,
        "batches": batches,
        "states": {number: states[number] for number in kept},
    }


def main() -> None:
    lines = [json.dumps(versions())]
    lines += [json.dumps({"name": name, **golden(build())}) for name, build in PIPELINES.items()]
    text = "\n".join(lines) + "\n"
    FILE.write_text(text.replace(str(Path(__file__).parent), "golden"))


if __name__ == "__main__":
    main()
