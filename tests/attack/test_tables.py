"""Tables whose manifests lie and whose data files are damaged: a TableError, or the right rows.

Manifests are attacked twice: with bytes changed at random, as a bad disk does, which must be
noticed; and with what they say changed and every hash made to fit, as a malicious writer does,
which must lead to no other file, no other error and no hang.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from store_tools import rows_of
from table_tools import changed, data_files, json_files, make_table, read_all

import silva as sv
from silva.plan import expr
from silva.plan.fingerprint import column_fingerprints

GOLDEN = Path(__file__).parents[1] / "golden" / "table-0.1"
VERSIONS, CODE = "Versions of tables", "Data is never code"
NEVER = "Never hangs, never shortens an epoch, never drops a row silently"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, and another one outside of it whose rows must never be seen."""
    folder = tmp_path_factory.mktemp("made")
    make_table(folder / "t")
    make_table(folder / "outside", first=1000)
    return folder


@pytest.fixture
def table(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "made")
    return tmp_path / "made" / "t"


@pytest.fixture(scope="module")
def expected(made: Path) -> str:
    return read_all(made / "t")


def told_or(right: str | None, table: Path) -> bool:
    """Whether it was told; else the rows must be right, where it is known what that is."""
    try:
        found = read_all(table)
    except sv.TableError:
        return True
    assert right is None or found == right
    return False


# Bytes that have changed.


def damaged(data: bytes, draw: random.Random) -> bytes:
    at, end = sorted(draw.choices(range(len(data)), k=2))
    match draw.randrange(6):
        case 0:
            return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]
        case 1:
            return data[:at]
        case 2:
            return data[:at] + data[end:]
        case 3:
            return data[:end] + data[at:]
        case 4:
            return data[:at] + draw.randbytes(end - at) + data[end:]
    digit = draw.choice(b"0123456789abcdef")
    return data[:at] + bytes([digit]) + data[at + 1 :]


def attack_bytes(table: Path, right: str, seed: int, count: int) -> int:
    draw, told = random.Random(seed), 0
    files = json_files(table)
    for _ in range(count):
        file = draw.choice(files)
        whole = file.read_bytes()
        file.write_bytes(damaged(whole, draw))
        told += told_or(right, table)
        file.write_bytes(whole)
    return told


@pytest.mark.attacks(VERSIONS)
def test_changed_bytes_of_manifests_are_told_or_change_nothing(table: Path, expected: str) -> None:
    assert attack_bytes(table, expected, seed=1, count=80) > 40


@pytest.mark.rest
@pytest.mark.attacks(VERSIONS)
def test_thousands_of_changed_manifests_are_told_or_change_nothing(
    table: Path, expected: str
) -> None:
    assert attack_bytes(table, expected, seed=2, count=4000) > 2000


@pytest.mark.attacks(VERSIONS)
def test_manifests_in_each_others_places_are_told(table: Path, expected: str) -> None:
    draw = random.Random(3)
    for _ in range(20):
        a, b = draw.sample(json_files(table), 2)
        whole = a.read_bytes()
        a.write_bytes(b.read_bytes())
        told_or(expected, table)
        a.write_bytes(whole)


def attack_bits(table: Path, right: str | None, seed: int, count: int) -> int:
    draw, told = random.Random(seed), 0
    files = data_files(table)
    sizes = [file.stat().st_size for file in files]
    for file in draw.choices(files, sizes, k=count):
        whole = file.read_bytes()
        at = draw.randrange(len(whole))
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << draw.randrange(8)]) + whole[at + 1 :])
        told += told_or(right, table)
        file.write_bytes(whole)
    return told


@pytest.mark.attacks(VERSIONS)
def test_flipped_bits_of_data_files_are_told_or_change_nothing(table: Path, expected: str) -> None:
    assert attack_bits(table, expected, seed=4, count=200) > 180


@pytest.mark.rest
@pytest.mark.attacks(VERSIONS)
def test_thousands_of_flipped_bits_of_data_files_are_told(table: Path, expected: str) -> None:
    assert attack_bits(table, expected, seed=5, count=3000) > 2700


@pytest.mark.attacks(NEVER)
def test_what_lance_does_on_damaged_files_of_0_1_is_an_error_of_silva(tmp_path: Path) -> None:
    """They have no checksums: some bits change rows. Lance panics on some."""
    shutil.copytree(GOLDEN, tmp_path / "t")
    assert attack_bits(tmp_path / "t", None, seed=7, count=60) > 20


# What manifests say.


def at_random(value: Any, draw: random.Random) -> Any:
    """A value with something in it replaced by what nobody expects there."""
    inner = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    if not inner or draw.random() < 0.1:
        return hostile(draw)
    key, item = draw.choice(inner)
    if draw.random() < 0.1:
        return {k: v for k, v in value.items() if k != key} if isinstance(value, dict) else []
    new = at_random(item, draw) if isinstance(item, dict | list) else hostile(draw, item)
    if isinstance(value, dict):
        return {**value, key: new}
    return [*value[:key], new, *value[key + 1 :]]


def hostile(draw: random.Random, like: Any = None) -> Any:
    if isinstance(like, int) and draw.random() < 0.5:
        return like + draw.choice([-1, 1, 1 << 20, -(1 << 40)])
    outside = [
        "../../outside",
        "../outside",
        "/etc/passwd",
        "..",
        ".",
        "",
        "a\\b",
        "a\0b",
        "x" * 5000,
    ]
    numbers = [-1, 0, 1, 7, 1 << 31, 1 << 62, -(1 << 63), 1.5, 1e308, True]
    nested: Any = []
    for _ in range(50):
        nested = [nested]
    return draw.choice([*outside, *numbers, None, [], {}, [[]], nested, "0" * 32, "main"])


def attack_meaning(table: Path, seed: int, count: int) -> int:
    draw, told = random.Random(seed), 0
    files = json_files(table)
    for _ in range(count):
        before = {file: file.read_bytes() for file in json_files(table)}
        changed(table, draw.choice(files), lambda value: at_random(value, draw))
        told += told_or(None, table)
        for file in json_files(table):
            if file not in before:
                file.unlink()
            elif file.read_bytes() != before[file]:
                file.write_bytes(before[file])
    return told


@pytest.mark.attacks(CODE)
def test_manifests_that_say_anything_are_told_or_read(table: Path, expected: str) -> None:
    assert attack_meaning(table, seed=7, count=60) > 20
    assert read_all(table) == expected


@pytest.mark.rest
@pytest.mark.attacks(CODE)
def test_thousands_of_manifests_that_say_anything_are_told_or_read(
    table: Path, expected: str
) -> None:
    assert attack_meaning(table, seed=8, count=4000) > 1500
    assert read_all(table) == expected


def head_of(table: Path) -> Path:
    return sorted((table / "versions" / "main").iterdir())[-1]


def the_list(table: Path) -> Path:
    """The list of the last version."""
    (ref,) = sv.Table.open(table).version.lists
    return table / "lists" / f"{ref.name}.json"


@pytest.mark.attacks(NEVER)
@pytest.mark.parametrize(
    "parent", [["main", 7], ["main", 8], ["../../outside", 1], ["main", 0], ["..", 1], ["/", 1]]
)
def test_parents_that_are_later_or_elsewhere_are_refused(table: Path, parent: list[Any]) -> None:
    """With a version as its own parent, `versions()` would never end."""
    head = head_of(table)
    changed(table, head, lambda version: {**version, "parent": parent})
    with pytest.raises(sv.TableError, match="damaged"):
        sv.Table.open(table).versions()


@pytest.mark.attacks(CODE)
def test_a_version_in_the_place_of_another_is_refused(table: Path) -> None:
    older = head_of(table).with_name("0000000002.json")
    shutil.copy(older, head_of(table))
    with pytest.raises(sv.TableError, match="claims to be version 2"):
        sv.Table.open(table)


def outer(table: Path) -> list[str]:
    """Names that lead to data of the table outside."""
    other = data_files(table.parent / "outside")[0]
    place = f"{other.parent.name}/{other.name}"
    climbing = "/".join([".."] * len((table / "data").parts)) + str(other)
    return [str(other), f"../../outside/data/{place}", f"x/../../../outside/data/{place}", climbing]


@pytest.mark.attacks(CODE)
@pytest.mark.parametrize("which", range(4))
def test_data_files_outside_are_refused(table: Path, which: int) -> None:
    def elsewhere(fragments: list[Any]) -> list[Any]:
        fragments[0]["parts"][0]["files"][0]["name"] = outer(table)[which]
        return fragments

    changed(table, the_list(table), elsewhere)
    with pytest.raises(sv.TableError, match="damaged"):
        read_all(table)
    with pytest.raises(sv.TableError, match="damaged"):
        sv.Table.open(table).gc(versions=1)


@pytest.mark.attacks(CODE)
@pytest.mark.parametrize("field", ["schema", "lists", "definitions"])
def test_names_of_manifests_outside_are_refused(table: Path, field: str) -> None:
    other = table.parent / "outside"
    inside = {"schema": "schemas", "lists": "lists", "definitions": "definitions"}[field]
    name = f"../../outside/{inside}/{next((other / inside).iterdir()).stem}"

    def elsewhere(version: dict[str, Any]) -> dict[str, Any]:
        if field == "schema":
            return {**version, "schema": name}
        if field == "lists":
            return {**version, "lists": [{**version["lists"][0], "name": name}]}
        return {**version, "definitions": [["twice", name]]}

    changed(table, head_of(table), elsewhere)
    with pytest.raises(sv.TableError, match="damaged"):
        read_all(table)


@pytest.mark.attacks(CODE)
@pytest.mark.parametrize("branch", ["../../outside/versions/main", "..", "", "/"])
def test_tags_that_lead_outside_are_refused(table: Path, branch: str) -> None:
    changed(table, table / "tags" / "first.json", lambda tag: {**tag, "branch": branch})
    with pytest.raises(sv.TableError, match="damaged"):
        sv.Table.open(table).at("first")


@pytest.mark.attacks(NEVER)
@pytest.mark.parametrize(
    "text",
    [b"[" * 100_000, b'{"format":' + b"[" * 100_000, b"", b"null", b'{"format":2}', b"\xff\xfe"],
    ids=["deep", "deep within", "empty", "null", "no body", "no text"],
)
def test_files_that_are_no_manifests_are_told(table: Path, text: bytes) -> None:
    for file in (head_of(table), the_list(table), table / "tags" / "first.json"):
        whole = file.read_bytes()
        file.write_bytes(text)
        with pytest.raises(sv.TableError, match="damaged"):
            read_all(table)
        file.write_bytes(whole)


@pytest.mark.attacks(NEVER)
def test_a_table_of_a_newer_silva_is_told(table: Path) -> None:
    head = head_of(table)
    head.write_bytes(head.read_bytes().replace(b'"format":2', b'"format":3'))
    with pytest.raises(sv.TableError, match="Upgrade silva"):
        sv.Table.open(table)


def shared(count: int) -> list[Any]:
    """An expression that doubles with every part."""
    return [["col", "id"], *(["call", "add", [i, i], []] for i in range(count))]


def chained(count: int) -> list[Any]:
    return [["col", "id"], *(["call", "add", [i, 0], []] for i in range(count))]


@pytest.mark.attacks(NEVER)
@pytest.mark.parametrize("term", [shared(60), chained(3000), [["literal", {"list": []}]] * 3, []])
def test_expressions_that_nobody_could_write_are_refused(table: Path, term: list[Any]) -> None:
    name = dict(sv.Table.open(table).version.definitions)["twice"]
    definition = table / "definitions" / f"{name}.json"
    changed(table, definition, lambda said: {**said, "term": term})
    with pytest.raises(sv.TableError):
        list(sv.Table.open(table).read().head(1))


@pytest.mark.attacks(NEVER)
def test_a_small_definition_of_a_vast_expression_holds_nobody_up(table: Path) -> None:
    """Its fingerprint is right, and soon computed; to walk it would take forever."""
    vast: expr.Term = expr.Col("id")
    for _ in range(60):
        vast = expr.Call("add", (vast, vast), ())
    (name,) = column_fingerprints(vast, ("=id",), ("twice",))
    own = dict(sv.Table.open(table).version.definitions)
    definition = (table / "definitions" / f"{own['twice']}.json").rename(
        table / "definitions" / f"{name}.json"
    )
    changed(table, definition, lambda said: {**said, "term": shared(60)})
    changed(table, head_of(table), lambda said: {**said, "definitions": [["twice", name]]})
    with pytest.raises(sv.TableError, match="not an expression"):
        list(sv.Table.open(table).read(["id", "twice"]).head(1))


@pytest.mark.attacks(NEVER)
def test_columns_that_are_computed_of_each_other_are_refused(table: Path) -> None:
    own = sv.Table.open(table)
    fn: Callable[[Any], Any] = lambda twice: twice + 1  # noqa: E731  its fingerprint is its own
    own.derive(one=fn)
    names = dict(own.version.definitions)
    definition = table / "definitions" / f"{names['one']}.json"
    changed(table, definition, lambda said: {**said, "inputs": [names["one"]]})
    with pytest.raises(sv.TableError, match="from each other"):
        own.materialize("one")


@pytest.mark.attacks(VERSIONS)
def test_gc_of_a_damaged_table_deletes_nothing(table: Path) -> None:
    own = sv.Table.open(table)
    the_list(table).write_bytes(b"[]")
    before = sorted(table.rglob("*"))
    with pytest.raises(sv.TableError, match="damaged"):
        own.gc(versions=1)
    assert sorted(table.rglob("*")) == before


# Tables of 0.1.


@pytest.mark.attacks(VERSIONS)
def test_a_table_of_0_1_is_read_changed_and_collected(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN, tmp_path / "t")
    rows = json.loads(GOLDEN.with_name("table-0.1.rows.json").read_text())
    table = sv.Table.open(tmp_path / "t")
    assert rows_of(table) == rows["last"]
    assert rows_of(table.at("first")) == rows["first"]
    table.delete(sv.col("id") == 7).materialize("twice")
    assert rows_of(table) == [row for row in rows["last"] if row["id"] != 7]
    table.gc(versions=1)
    assert rows_of(table) == [row for row in rows["last"] if row["id"] != 7]
    assert rows_of(table.at("first")) == rows["first"]
