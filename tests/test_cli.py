"""The command line: what it prints, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import silva
from silva.cli import main

TRAIN = """
import silva as sv

def check(x):
    if x == 7:
        raise ValueError("seven")
    return x + 1

good = sv.from_columns({"x": range(100)}).derive(y=lambda x: x * 2).shuffle(seed=0).batch(10)
bad = sv.from_columns({"x": range(100)}).derive(y=check)
number = 5

def made():
    return good
"""


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "train_file", raising=False)
    path = tmp_path / "train_file.py"
    path.write_text(TRAIN)
    return str(path)


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0)


def test_version(capsys) -> None:
    assert run("version") == 0
    assert capsys.readouterr().out.strip() == silva.__version__


def test_the_module_is_the_command() -> None:
    command = [sys.executable, "-m", "silva", "version"]
    assert (
        subprocess.run(command, capture_output=True, text=True).stdout.strip() == silva.__version__
    )


def test_run_reads_an_epoch_and_says_how_fast(train, capsys) -> None:
    assert run("run", f"{train}:good", "--workers", "0") == 0
    out = capsys.readouterr().out
    assert "10 batches of 100 rows in" in out
    assert "rows/s" in out


def test_run_can_stop_early_and_show_progress(train, capsys) -> None:
    assert run("run", f"{train}:made", "--batches", "3", "--workers", "0", "--progress") == 0
    found = capsys.readouterr()
    assert "3 batches of 30 rows" in found.out
    assert "epoch 0" in found.err


def test_run_one_row(train, capsys) -> None:
    assert run("run", f"{train}:bad", "--row", "0:8") == 0
    assert capsys.readouterr().out.splitlines() == ["x: 8", "y: 9"]


def test_a_row_that_fails_shows_the_users_traceback(train, capsys) -> None:
    assert run("run", f"{train}:bad", "--row", "0:7") == 1
    err = capsys.readouterr().err
    assert "ValueError: seven" in err
    assert "in check" in err
    assert "silva/physical" not in err


def test_an_epoch_that_fails_names_the_row(train, capsys) -> None:
    assert run("run", f"{train}:bad", "--workers", "0") == 1
    err = capsys.readouterr().err
    assert "row 0:7 failed" in err
    assert "seven" in err


def test_explain(train, capsys) -> None:
    assert run("explain", f"{train}:good") == 0
    out = capsys.readouterr().out
    assert "Plan as written" in out
    assert "[train_file.py:9]" in out


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("nothing.py:x", "there is no file"),
        ("{train}:nobody", "has no 'nobody'; its pipelines are: good, bad"),
        ("{train}:number", "'number' in"),
        ("{train}", "name the pipeline"),
    ],
)
def test_a_mistake_is_one_line_and_code_two(train, capsys, target: str, expected: str) -> None:
    assert run("explain", target.format(train=train)) == 2
    err = capsys.readouterr().err
    assert expected in err
    assert err.startswith("silva: ")
    assert "Traceback" not in err


def test_a_module_in_place_of_a_file_shows_how_to_name_it(train, capsys, monkeypatch) -> None:
    file = Path(train)
    monkeypatch.chdir(file.parent)
    assert run("explain", f"{file.stem}:good") == 2
    assert f"named by its file, {file.name}:NAME" in capsys.readouterr().err


def test_wrong_options_are_mistakes_too(train, capsys) -> None:
    assert run("run", f"{train}:good", "--workers", "-1") == 2
    assert run("run", f"{train}:good", "--row", "seven") == 2
    assert run("run", f"{train}:good", "--workers", "many") != 0
    assert "Traceback" not in capsys.readouterr().err


def test_the_installed_command_works_with_worker_processes(train) -> None:
    code = (
        "import sys; from silva.cli import find_pipeline\n"
        f"p = find_pipeline({train + ':good'!r})\n"
        "with p.loader(backend='processes', workers=1) as l: print(sum(len(b['x']) for b in l))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert found.stdout.strip() == "100", found.stderr
    shown = subprocess.run(
        [sys.executable, "-c", "from silva.cli import main; main()", "version"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert shown.stdout.strip() == silva.__version__


def test_explain_as_data_and_as_a_page(train, capsys, tmp_path) -> None:
    page = tmp_path / "plan.html"
    assert run("explain", f"{train}:good", "--json", "--html", str(page)) == 0
    assert json.loads(capsys.readouterr().out)["version"] == 1
    assert page.read_text().startswith("<!doctype html>")


def test_explain_with_measurements(train, capsys) -> None:
    assert run("explain", f"{train}:good", "--analyze", "--seconds", "0.2") == 0
    assert "\nMeasured\n" in capsys.readouterr().out
    assert run("explain", f"{train}:good", "--seconds", "0.2") == 2
    assert "--analyze" in capsys.readouterr().err
