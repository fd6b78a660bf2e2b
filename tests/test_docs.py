"""The documentation is run: what a page shows is what happens.

A page's Python blocks run one after another in one namespace, in an empty folder. A `text` block
that follows one shows what it prints. `python no-run` and `text no-check` are shown only; a comment
`<!-- setup … -->` is run but not shown. Functions are located as if the reader had pasted the
blocks of a page into `train.py`.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<code>.*?)^(?P=indent)``` *$"
    r"|^<!-- setup\n(?P<setup>.*?)^--> *$",
    re.MULTILINE | re.DOTALL,
)
_LINK = re.compile(r"!?\[[^\]]*\]\((?!https?:|mailto:)([^)\s#]*)(?:#([^)\s]+))?\)")
_FILE = "train.py"
_LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    """A fenced block, or a hidden one."""

    info: str
    """`python`, `text`, `setup`, …, and what follows it on the line."""
    code: str
    line: int
    """Where it starts in the page."""


def blocks(page: str) -> list[Block]:
    """All blocks of a page, in order."""
    found = []
    for match in _BLOCK.finditer(page):
        line = page.count("\n", 0, match.start()) + 2
        hidden = match["setup"]
        if hidden is None:
            found.append(Block(match["info"].strip(), textwrap.dedent(match["code"]), line))
        else:
            found.append(Block("setup", hidden, line))
    return found


def run(page: str) -> list[str]:
    """Runs a page; gives a sentence for each block that does not do what the page says."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    wrong: list[str] = []
    shown = 0
    printed: str | None = None
    for block in blocks(page):
        if block.info in ("python", "setup"):
            before = 0 if block.info == "setup" else shown
            printed = _execute(block, _FILE, before, namespace)
            shown += block.code.count("\n") if block.info == "python" else 0
        elif block.info == "text" and printed is not None:
            if not doctest.OutputChecker().check_output(block.code, printed, _LOOSELY):
                wrong.append(
                    f"line {block.line} shows\n{block.code}\nbut this is printed:\n{printed}"
                )
            printed = None
    namespace.clear()  # drops the page's loaders, which their own steps may refer to
    return wrong


def _execute(block: Block, file: str, before: int, namespace: dict[str, Any]) -> str:
    """What the block prints. Its lines are numbered after those that the page has shown before."""
    out = io.StringIO()
    code = compile("\n" * before + block.code, file, "exec")
    with contextlib.redirect_stdout(out):
        try:
            exec(code, namespace)  # noqa: S102  our own pages
        except Exception as error:
            error.add_note(f"in the block at line {block.line} of the page")
            raise
    return out.getvalue()


@pytest.mark.usefixtures("forget_rules")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_on_a_page_runs_and_prints_what_it_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = run(page.read_text(encoding="utf-8"))
    assert not wrong, f"{page.name}: " + "\n".join(wrong)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target, anchor in _LINK.findall(text):
        file = page if not target else page.parent / target
        assert file.exists(), f"{page.name} links to {target}, which does not exist"
        if anchor:
            assert anchor in _anchors(file.read_text(encoding="utf-8")), f"{target}#{anchor}"


def _anchors(page: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def test_tests_that_the_promises_name_exist() -> None:
    text = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", text))
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    defined = {name for source in sources for name in re.findall(r"def (test_\w+)", source)}
    assert named, "the page names no tests"
    assert not named - defined


@pytest.mark.parametrize("page", ["architecture", "design-notes"])
def test_files_that_the_architecture_names_exist(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:\w+/)*\w+\.py|(?:\w+/)+)`", text)
    assert len(named) > 20, "the page names its files"
    roots = (ROOT, ROOT / "src" / "silva")
    assert not [name for name in named if not any((root / name).exists() for root in roots)]


def test_rooms_that_the_architecture_lists_are_all_there_are() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = text[text.index("| room |") : text.index("## One batch")]
    listed = set(re.findall(r"`(\w+/|\w+\.py)`", table))
    source = ROOT / "src" / "silva"
    rooms = {f"{path.parent.name}/" for path in source.glob("*/__init__.py")}
    rooms |= {path.name for path in source.glob("*.py")} - {"__init__.py"}
    assert listed == rooms


def test_the_glossary_defines_each_word_once() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\| \*\*([\w ]+)\*\* \|", text, re.MULTILINE)
    assert len(words) > 40
    assert len(set(words)) == len(words)


def test_pages_name_no_machine_and_leave_nothing_to_be_filled_in() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"/(home|root|work|tmp)/|TODO|TBD", text), page.name


def test_a_block_that_prints_something_else_is_found() -> None:
    page = "```python\nprint(1)\n```\n\n```text\n2\n```\n"
    assert run(page) != []
    assert run(page.replace("2", "1")) == []
