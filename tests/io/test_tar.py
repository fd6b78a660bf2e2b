from __future__ import annotations

import gzip
import io
import tarfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from source_laws import check_chunked, everything, unit

from silva.errors import SourceError
from silva.io.tar import read_tar

quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def pack(members, form=tarfile.PAX_FORMAT, mtime=0.0):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.mtime = mtime
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def members_of(rows):
    return [
        (f"{row['key']}.{name}", data)
        for row in rows
        for name, data in row.items()
        if name != "key" and data is not None
    ]


ROWS = [
    {"key": f"train/{i:04}", "jpg": bytes([i]) * (i * 37), "seg.png": None, "cls": b"%d" % i}
    for i in range(30)
]
ROWS[4]["seg.png"] = b"mask"


@quick
@given(
    st.lists(st.tuples(st.binary(max_size=1500), st.none() | st.binary(max_size=9)), max_size=9),
    st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT]),
    st.sampled_from([0.0, 1.5]),
    st.booleans(),
    st.sampled_from(["k", "ö" * 40, "long/" * 40 + "x"]),
)
def test_rows_come_back_whatever_the_form(tmp_path, data, form, mtime, zipped, stem):
    if form == tarfile.USTAR_FORMAT:
        mtime = int(mtime)
    rows = [{"key": f"{stem}{i}", "jpg": a, "cls": b} for i, (a, b) in enumerate(data)]
    content = pack(members_of(rows), form, mtime)
    path = tmp_path / ("x.tar.gz" if zipped else "x.tar")
    path.write_bytes(gzip.compress(content, 1) if zipped else content)
    source = read_tar(path, columns=["key", "jpg", "cls"])
    assert source.replays == zipped
    assert check_chunked(source) == rows


def test_columns_are_found_in_the_first_tar(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.tar").write_bytes(pack(members_of(ROWS)))
    source = read_tar(tmp_path)
    assert source.columns() == ("key", "jpg", "cls", "seg.png")
    assert source.units() == 2
    assert check_chunked(source) == ROWS * 2


def test_only_members_that_are_asked_for_are_read(tmp_path, monkeypatch):
    from silva.io import tar

    (tmp_path / "a.tar").write_bytes(pack(members_of(ROWS)))
    read = []
    original = tar.read_data
    monkeypatch.setattr(tar, "read_data", lambda s, m, p: read.append(m.name) or original(s, m, p))
    source = read_tar(tmp_path)
    unit(source, 0, 28, ("cls",))
    assert read == ["train/0028.cls", "train/0029.cls"]


def test_runs_are_bounded(tmp_path):
    rows = [{"key": str(i), "bin": bytes(1 << 20)} for i in range(10)]
    (tmp_path / "a.tar").write_bytes(pack(members_of(rows)))
    runs = list(read_tar(tmp_path).open(0, 1, ("key", "bin")))
    assert [len(run["key"]) for run in runs] == [4, 4, 1]


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("keep", [0, 100, 512, 700, 30_000, -10240])
def test_a_truncated_tar_is_named_with_its_offset(tmp_path, keep, zipped):
    content = pack(members_of(ROWS[1:]))[:keep].rstrip(b"\0") if keep < 0 else None
    content = pack(members_of(ROWS[1:]))[:keep] if content is None else content
    path = tmp_path / ("x.tar.gz" if zipped else "x.tar")
    path.write_bytes(gzip.compress(content) if zipped else content)
    with pytest.raises(SourceError, match=r"x\.tar(\.gz)? is truncated: it ends at byte [\d,]+"):
        everything(read_tar(path))


def test_a_truncated_gzip_is_named(tmp_path):
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(pack(members_of(ROWS)))[:-200])
    with pytest.raises(SourceError, match=r"x.tar.gz is damaged or truncated at byte"):
        everything(read_tar(tmp_path))


def test_what_is_no_tar_is_named(tmp_path):
    (tmp_path / "x.tar").write_bytes(b"no tar at all" * 100)
    with pytest.raises(SourceError, match=r"x.tar: no valid tar header at byte 0"):
        everything(read_tar(tmp_path))


def test_an_empty_archive_has_no_rows(tmp_path):
    (tmp_path / "a.tar").write_bytes(pack([]))
    assert everything(read_tar(tmp_path)) == []
    (tmp_path / "b.tar").write_bytes(pack(members_of(ROWS[:2])))
    assert everything(read_tar(tmp_path)) == [
        {"key": row["key"], "jpg": row["jpg"], "cls": row["cls"]} for row in ROWS[:2]
    ]


def test_folders_links_and_hidden_members_are_no_rows(tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for name, kind in (("d", tarfile.DIRTYPE), ("d/l.jpg", tarfile.SYMTYPE)):
            info = tarfile.TarInfo(name)
            info.type = kind
            archive.addfile(info)
        for name in ("./d/a.jpg", "d/._a.jpg", "__notes__", "d/b.jpg"):
            info = tarfile.TarInfo(name)
            info.size = 2
            archive.addfile(info, io.BytesIO(b"ab"))
    assert check_chunked(read_tar(tmp_path)) == [
        {"key": "d/a", "jpg": b"ab"},
        {"key": "d/b", "jpg": b"ab"},
    ]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("README", b"")], "members are called key.extension"),
        ([("a.jpg", b""), ("a.jpg", b"")], "has the member 'a.jpg' twice"),
        ([(f"{i}.jpg", b"") for i in range(100)] + [("x.png", b"")], "has a member .png"),
    ],
)
def test_members_that_belong_to_no_row_are_errors(tmp_path, members, message):
    (tmp_path / "x.tar").write_bytes(pack(members))
    with pytest.raises(SourceError, match=message):
        everything(read_tar(tmp_path))


def test_chosen_columns_ignore_other_extensions(tmp_path):
    (tmp_path / "x.tar").write_bytes(pack([("a.jpg", b"1"), ("b.png", b"2")]))
    source = read_tar(tmp_path, columns=["png"])
    assert check_chunked(source) == [{"png": None}, {"png": b"2"}]
