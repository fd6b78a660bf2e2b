from __future__ import annotations

import gzip

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from source_laws import check_chunked, unit

from silva.columns import Strings
from silva.errors import PlanError, SourceError
from silva.io.text.lines import read_lines

quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
text = st.text(st.characters(exclude_characters="\n\r", exclude_categories=("Cs",)), max_size=12)


def lines_of(source):
    return [row["text"] for row in check_chunked(source)]


@quick
@given(st.lists(text, max_size=20), st.booleans(), st.booleans(), st.integers(1, 24))
def test_every_line_belongs_to_one_unit(tmp_path, lines, windows, ended, unit_bytes):
    end = "\r\n" if windows else "\n"
    content = end.join(lines) + (end if ended and lines else "")
    path = tmp_path / "x.txt"
    path.write_bytes(content.encode())
    expected = content.replace("\r\n", "\n").split("\n")
    if expected[-1] == "":
        expected.pop()
    assert lines_of(read_lines(path, unit_bytes=unit_bytes)) == expected
    assert lines_of(read_lines(path)) == expected


def test_files_are_read_in_order_and_may_be_empty(tmp_path):
    for name, content in {"a": "1\n2", "b": "", "c": "\n\n3\n"}.items():
        (tmp_path / name).write_text(content)
    assert lines_of(read_lines(tmp_path / "*")) == ["1", "2", "", "", "3"]
    assert lines_of(read_lines(tmp_path / "b")) == []


def test_lines_longer_than_a_piece(tmp_path):
    lines = ["x" * 3_000_000, "short", "y" * 1_500_000]
    (tmp_path / "x").write_text("\n".join(lines))
    assert lines_of(read_lines(tmp_path / "x")) == lines
    assert lines_of(read_lines(tmp_path / "x", unit_bytes=700_000)) == lines


def test_many_short_lines_come_in_bounded_runs(tmp_path):
    (tmp_path / "x").write_text("ab\n" * 1_000_000)
    source = read_lines(tmp_path / "x", unit_bytes=4 << 20)
    runs = [len(run["text"]) for run in source.open(0, 0, ("text",))]
    assert sum(runs) == 1_000_000
    assert max(runs) <= 400_000


def test_units_grow_with_the_data(tmp_path):
    (tmp_path / "x").write_bytes(b"a\n" * 50_000)
    assert read_lines(tmp_path / "x").units() == 25


def test_lines_are_arrow_strings(tmp_path):
    (tmp_path / "x").write_text("a\n")
    (run,) = read_lines(tmp_path / "x", column="line").open(0, 0, ("line",))
    assert isinstance(run["line"], Strings)


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_a_compressed_file_is_one_unit_that_replays(tmp_path, suffix):
    import bz2
    import lzma

    pack = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}[suffix]
    lines = [f"line {i}" for i in range(200_000)]
    path = tmp_path / f"x.txt{suffix}"
    path.write_bytes(pack("\n".join(lines).encode()))
    source = read_lines(path, unit_bytes=1000)
    assert source.replays
    assert source.units() == 1
    assert [row["text"] for row in unit(source, 0, 150_000)] == lines[150_000:]
    assert len(unit(source, 0)) == len(lines)


def test_a_truncated_gzip_file_is_named(tmp_path):
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b"hello\n" * 1000)[:-10])
    with pytest.raises(SourceError, match=r"x.gz is truncated"):
        unit(read_lines(path), 0)


def test_invalid_utf8_is_named_or_replaced(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(b"good\n" * 1000 + b"b\xffd\n")
    source = read_lines(path)
    with pytest.raises(SourceError, match=r"x.txt is not utf-8 at byte 5,001"):
        unit(source, source.units() - 1)
    replaced = lines_of(read_lines(path, errors="replace"))
    assert replaced[-2:] == ["good", "b\ufffdd"]
    assert read_lines(path, errors="replace").fingerprint() != source.fingerprint()


def test_the_size_of_units_is_part_of_the_fingerprint(tmp_path):
    (tmp_path / "x").write_text("a\n")
    a, b = read_lines(tmp_path / "x"), read_lines(tmp_path / "x", unit_bytes=7)
    assert a.fingerprint() != b.fingerprint()


def test_a_changed_file_is_an_error(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("a\nb\n")
    source = read_lines(path)
    assert source.units() == 1
    path.write_text("a\nb\nc\n")
    with pytest.raises(SourceError, match="has changed"):
        unit(source, 0)


def test_arguments_are_checked_at_once():
    for wrong in ({"errors": "ignore"}, {"column": ""}):
        with pytest.raises(PlanError):
            read_lines("x", **wrong)
