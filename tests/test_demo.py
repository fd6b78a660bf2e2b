"""The demo and the examples run as they are."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

pytest.importorskip("sklearn")
pytest.importorskip("torch")

from silva.demo import run_demo
from silva.demo.photos import make_photos
from silva.errors import SilvaError

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
EXAMPLES = [path for path in EXAMPLES if path.stem != "rag"]  # tests/serve/test_retrieval.py's


def test_the_demo_learns_resumes_exactly_and_writes_a_report(tmp_path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    out = io.StringIO()
    accuracy = run_demo(
        folder=tmp_path / "photos", photos=600, console=Console(file=out, width=120)
    )
    text = out.getvalue()
    assert accuracy > 0.8
    assert "Plan as run" in text
    assert "to the last byte" in text
    assert "The trainer waited" in (tmp_path / "silva-report.html").read_text()
    assert len(list((tmp_path / "photos").glob("*/*.jpg"))) == 600


def test_photos_are_the_same_every_time(tmp_path) -> None:
    for name in ("a", "b", "b"):
        make_photos(tmp_path / name, 6)
    for one in (tmp_path / "a").glob("*/*.jpg"):
        other = tmp_path / "b" / one.relative_to(tmp_path / "a")
        assert one.read_bytes() == other.read_bytes()


def test_too_few_photos_are_refused() -> None:
    with pytest.raises(SilvaError, match="at least 200"):
        run_demo(photos=5)


@pytest.mark.rest
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run_as_they_are(example: Path, tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, str(example)],
        capture_output=True,
        text=True,
        timeout=90,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert found.returncode == 0, found.stderr
    assert "False" not in found.stdout
