"""`docs/security.md` names every place in silva where data could become code."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "silva"
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")

_UNPICKLES = re.compile(
    r"pickle\.(loads?|Unpickler)\b"  # cloudpickle's too
    r"|from (cloud)?pickle import"
    r"|\bmarshal\b|\bshelve\b|\bdill\b|\bjoblib\b"
    r"|(?<![\w.])(?<!def )(eval|exec)\("
    r"|allow_pickle=True|weights_only=False"
    r"|noqa: [A-Z0-9, ]*\b(S102|S301|S302|S307)\b"
)
_TORCH = re.compile(r"torch\.load\((?!.*weights_only=True)")
_ROW = re.compile(r"^\| `([\w/]+\.py)` \| .* \| .* \|$", re.MULTILINE)


def section(title: str) -> str:
    return re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:][titles().index(title)]


def titles() -> list[str]:
    return re.findall(r"^## (.+)$", PAGE, re.MULTILINE)


def test_every_place_that_unpickles_is_named_on_the_page_and_no_other():
    sources = {p: p.read_text(encoding="utf-8") for p in SOURCE.rglob("*.py")}
    found = {str(p.relative_to(SOURCE)) for p, text in sources.items() if _UNPICKLES.search(text)}
    assert found == set(_ROW.findall(section("The one exception")))
    assert not [p for p, text in sources.items() if _TORCH.search(text)]


def test_what_the_page_names_is_there():
    cells = re.findall(r"`((?:tests/)?[\w*]+(?:/[\w*]+)*(?:\.py|/))`", PAGE)
    assert len(cells) > 10
    bases = {True: ROOT, False: SOURCE}
    missing = [c for c in cells if not list(bases[c.startswith("tests/")].glob(c.rstrip("/")))]
    assert not missing
