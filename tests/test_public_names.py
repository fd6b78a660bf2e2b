"""The public face: every name is where it should be, and importing silva stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import silva as sv


def test_every_public_name_is_there():
    assert sorted(sv._HOME) == sorted(sv.__all__)
    for name in sv.__all__:
        assert getattr(sv, name) is not None
    assert set(sv.__all__) <= set(dir(sv))
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        sv.nope  # noqa: B018


def test_type_checkers_see_the_same_names_from_the_same_places():
    tree = ast.parse(Path(sv.__file__).read_text())
    block = next(
        n
        for n in tree.body
        if isinstance(n, ast.If) and getattr(n.test, "id", "") == "TYPE_CHECKING"
    )
    seen = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == sv._HOME


def test_importing_silva_and_writing_a_pipeline_loads_no_heavy_library():
    script = (
        "import sys, silva as sv\n"
        "sv.read_files('*.jpg').derive(i=sv.image('bytes').decode().resize(8, 8)).batch(4)\n"
        "print([m for m in ('torch', 'cv2', 'pyarrow', 'pandas', 'rich') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
