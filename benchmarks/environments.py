"""Where peers run: each environment is a folder `.envs/<name>` with what its file asks for.

Peers do not agree on versions with each other or with silva, so a contestant names the environment
that it runs in, and its process is started with that environment's Python. Environments are made
once, when first needed or by `make bench-peers`, and again when their file changes. One that cannot
be made is no error: its peers are shown as not installed, with the reason.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

_HERE = Path(__file__).parent
_FILES = _HERE / "environments"
_MADE = _HERE / ".envs"
_DEADLINE = 1800.0
"""Seconds for one `pip install`."""


class NotInstalled(RuntimeError):
    """An environment that could not be made, and why."""


def names() -> list[str]:
    return sorted(path.stem for path in _FILES.glob("*.txt"))


def requirements(name: str) -> list[str]:
    """What an environment's file asks for, with its versions."""
    return [line for step in _steps(name) for line in step if not line.startswith("-")]


def python_of(name: str | None) -> str:
    """The interpreter of an environment; silva's own without a name. NotInstalled if it is not."""
    if name is None:
        return sys.executable
    if not _is_made(name):
        note = _note(name)
        old = not note or note.startswith("made ")
        raise NotInstalled("python -m benchmarks.environments makes it" if old else note)
    return str(_MADE / name / "bin" / "python")


def make(name: str, say: Callable[[str], None] = print, *, again: bool = False) -> None:
    """Makes an environment, unless it is there, or failed with the same file before."""
    done = _fingerprint(name)
    if _note(name).endswith(done) and not again:
        return
    folder = _MADE / name
    try:
        say(f"environment {name}: a new one")
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        for line in _steps(name):
            say(f"environment {name}: pip install {' '.join(line)}")
            _run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *line])
    except NotInstalled as error:
        say(f"environment {name} could not be made: {error}")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "note.txt").write_text(f"{error}; {done}")
    else:
        (folder / "note.txt").write_text(f"made {done}")


def _steps(name: str) -> list[list[str]]:
    """The paragraphs of an environment's file: what each `pip install` is given."""
    paragraphs = (_FILES / f"{name}.txt").read_text().split("\n\n")
    lines = [[x for x in p.splitlines() if x and not x.startswith("#")] for p in paragraphs]
    return [x for x in lines if x]


def _fingerprint(name: str) -> str:
    text = f"{sys.version_info[:2]} {_steps(name)}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _note(name: str) -> str:
    """How making it ended last time; nothing where it was not tried."""
    path = _MADE / name / "note.txt"
    return path.read_text() if path.exists() else ""


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_DEADLINE)
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"no end after {_DEADLINE:.0f} s") from None
    except subprocess.CalledProcessError as error:
        said = [line for line in error.stderr.splitlines() if "ERROR" in line]
        raise NotInstalled((said or error.stderr.splitlines() or ["failed"])[-1]) from None


def main() -> int:
    """Makes those that are named, or all that are not there, also those that failed before."""
    for name in sys.argv[1:] or [name for name in names() if not _is_made(name)]:
        make(name, again=True)
    return 0


def _is_made(name: str) -> bool:
    return _note(name) == f"made {_fingerprint(name)}"


if __name__ == "__main__":
    sys.exit(main())
