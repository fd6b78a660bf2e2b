from __future__ import annotations

import cloudpickle
import pytest
from source_laws import check_indexed

import silva as sv
from silva.errors import PlanError, SourceError
from silva.io.file_source import files_at, read_files


@pytest.fixture
def photos(tmp_path, monkeypatch):
    for name in ("b/2.jpg", "b/10.jpg", "a/é.jpg", "a/notes.txt", "a/.hidden.jpg", "a/[1].jpg"):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    monkeypatch.chdir(tmp_path)
    return tmp_path / "photos"


def test_a_glob_is_listed_bytewise(photos):
    assert files_at("photos/**/*.jpg").listing.paths == (
        "photos/a/[1].jpg",
        "photos/a/é.jpg",
        "photos/b/10.jpg",
        "photos/b/2.jpg",
    )


def test_a_folder_means_the_files_below_it(photos):
    assert len(files_at("photos").listing) == 5
    assert len(files_at(photos, (".jpg",)).listing) == 4


def test_a_path_with_a_bracket_means_itself(photos):
    assert files_at("photos/a/[1].jpg").listing.paths == ("photos/a/[1].jpg",)


def test_files_named_twice_are_listed_once(photos):
    files = files_at(["photos/b/2.jpg", "./photos/b/2.jpg", photos / "b/2.jpg", "photos/b/*"])
    assert len(files.listing) == 2


def test_a_glob_without_a_match_says_where_it_looked(photos):
    with pytest.raises(
        SourceError, match=r"no file matches 'nothing/\*' .*working directory: "
    ) as e:
        files_at("nothing/*").listing  # noqa: B018
    assert str(photos.parent) in str(e.value)
    with pytest.raises(SourceError, match=r"holds no .tar files"):
        files_at("photos", (".tar",)).listing  # noqa: B018
    with pytest.raises(SourceError, match=r"there is no file 'gone.txt'"):
        files_at("gone.txt").listing  # noqa: B018


def test_a_broken_link_is_an_error_not_a_lost_row(photos):
    (photos / "link.jpg").symlink_to("nowhere")
    with pytest.raises(SourceError, match=r"link.jpg"):
        files_at("photos/*.jpg").listing  # noqa: B018


def test_paths_are_checked_before_anything_is_listed():
    files_at("does/not/exist/*")
    for wrong in ([], "", 3, [b"x"]):
        with pytest.raises((PlanError, TypeError)):
            files_at(wrong)


def test_an_address_is_refused_without_repeating_its_secret():
    with pytest.raises(PlanError) as error:
        read_files("s3://key:secret@bucket/x")
    assert "secret" not in str(error.value)


def test_the_listing_is_frozen_and_travels(photos):
    source = read_files("photos/b/*.jpg")
    data = cloudpickle.dumps(source)
    (photos / "b/3.jpg").write_bytes(b"late")
    assert cloudpickle.loads(data).length() == source.length() == 2
    assert read_files("photos/b/*.jpg").length() == 3


def test_relative_paths_keep_their_meaning_elsewhere(photos, monkeypatch):
    source = read_files("photos/b/*.jpg")
    monkeypatch.chdir("/")
    assert [row["bytes"] for row in check_indexed(source)] == [b"b/10.jpg", b"b/2.jpg"]


def test_the_fingerprint_moves_with_the_folder_and_sees_sizes(photos):
    before = read_files("photos/**/*.jpg").fingerprint()
    photos.rename(photos.parent / "moved")
    assert read_files("moved/**/*.jpg").fingerprint() == before
    (photos.parent / "moved/b/2.jpg").write_bytes(b"longer than before")
    assert read_files("moved/**/*.jpg").fingerprint() != before


def test_whole_files_obey_the_laws(photos):
    rows = check_indexed(read_files("photos/**/*.jpg"))
    assert rows[-1] == {"path": "photos/b/2.jpg", "bytes": b"b/2.jpg"}


def test_an_empty_file_is_a_row(photos):
    (photos / "b/0.jpg").write_bytes(b"")
    assert check_indexed(read_files("photos/b/*.jpg"))[0]["bytes"] == b""


@pytest.mark.parametrize("content", [b"", b"short", b"longer than it was"])
def test_a_changed_file_is_an_error(photos, content):
    source = read_files("photos/b/*.jpg")
    assert source.length() == 2
    (photos / "b/2.jpg").write_bytes(content)
    for read in (source.files.read, source.files.open, source.files.open_arrow):
        with pytest.raises(SourceError, match=r"photos/b/2.jpg has changed .* 7 bytes"):
            read([1] if read == source.files.read else 1)


def test_a_file_that_is_gone_is_named(photos):
    source = read_files("photos/b/*.jpg")
    assert source.length() == 2
    (photos / "b/2.jpg").unlink()
    with pytest.raises(SourceError, match=r"photos/b/2.jpg: it does not exist"):
        source.files.read([1])


def test_a_file_that_is_named_twice_is_one_row_and_concat_reads_it_twice(photos):
    given = ["photos/b/2.jpg", "photos/b/2.jpg", "photos/b/*.jpg"]
    once = [row["path"] for row in sv.read_files(given).head(9)]
    assert len(once) == len(set(once)) == len(list(photos.glob("b/*.jpg")))
    twice = sv.concat([sv.read_files("photos/b/2.jpg")] * 2)
    assert [row["path"] for row in twice.head(9)] == ["photos/b/2.jpg"] * 2
