"""`python -m benchmarks.regions`: what it gains to decode, crop or resize no more than is taken.

Not a race but a measurement to decide by; `docs/images.md` tells what came of it. CPU time of one
thread, the least of some rounds for each photo. Where a libturbojpeg of version 3 is found (or
`SILVA_TURBOJPEG` says where it is), its own cropping is measured too: once as it is, and once down
to the last row, as it would have to be for all damage to be found.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable
from ctypes.util import find_library
from pathlib import Path
from time import thread_time
from typing import Any

import cv2
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.data import put_large_photos, put_photos
from silva.operators.image.codecs import DecodeOptions, decode_bytes
from silva.operators.image.crops import random_box
from silva.operators.image.decoding.partial import rows_of, upper_rows
from silva.operators.image.header import Header, read_header
from silva.operators.image.moves import Crop, Resize

_MANY = DecodeOptions(limit=10**9)
_SIZE = 224
_PHOTOS, _LARGE_PHOTOS = 200, 16
Way = Callable[[bytes, Header, Crop], np.ndarray]


def whole(data: bytes, header: Header, crop: Crop) -> np.ndarray:
    return crop.mask(decode_bytes(data, _MANY))


def part(data: bytes, header: Header, crop: Crop) -> np.ndarray:
    pixels = upper_rows(data, False, header, rows_of(crop, header))
    return whole(data, header, crop) if pixels is None else crop.mask(pixels)


class TurboJpeg:
    """The columns and rows of a crop alone, as libturbojpeg decodes them."""

    def __init__(self, path: str, to_the_end: bool) -> None:
        self._lib: Any = ctypes.CDLL(path)
        self._lib.tj3Init.restype = ctypes.c_void_p
        self._to_the_end = to_the_end

    def __call__(self, data: bytes, header: Header, crop: Crop) -> np.ndarray:
        lib = self._lib
        handle = ctypes.c_void_p(lib.tj3Init(1))
        try:
            lib.tj3DecompressHeader(handle, data, ctypes.c_size_t(len(data)))
            left = max(crop.left - 32, 0) // 32 * 32  # blocks of all subsamplings begin there
            right = min(crop.left + crop.width + 32, header.width)
            bottom = min(crop.top + crop.height + 32, header.height)
            bottom = header.height if self._to_the_end else bottom
            top = max(crop.top - 32, 0)
            box = (ctypes.c_int * 4)(left, top, right - left, bottom - top)
            lib.tj3SetCroppingRegion(handle, _Region.from_buffer(box))
            pixels = np.empty((bottom - top, right - left, 3), np.uint8)
            where = ctypes.c_void_p(pixels.ctypes.data)
            if lib.tj3Decompress8(handle, data, ctypes.c_size_t(len(data)), where, 0, 0):
                raise ValueError("libturbojpeg failed")
        finally:
            lib.tj3Destroy(handle)
        return Crop(crop.top - top, crop.left - left, crop.height, crop.width).mask(pixels)


class _Region(ctypes.Structure):
    _fields_ = (("x", ctypes.c_int), ("y", ctypes.c_int), ("w", ctypes.c_int), ("h", ctypes.c_int))


def ways() -> dict[str, Way]:
    found: dict[str, Way] = {"whole": whole, "upper rows": part}
    path = os.environ.get("SILVA_TURBOJPEG") or find_library("turbojpeg")
    if path is not None and hasattr(ctypes.CDLL(path), "tj3SetCroppingRegion"):
        found["libturbojpeg's region"] = TurboJpeg(path, to_the_end=False)
        found["… down to the end"] = TurboJpeg(path, to_the_end=True)
    return found


def boxes(kind: str, headers: list[Header]) -> list[Crop]:
    rng = np.random.default_rng(0)
    made = []
    for header in headers:
        height, width = header.height, header.width
        drawn = rng.random(22).tolist()
        side = min(_SIZE, height, width)
        if kind == "random_resized_crop":
            made.append(random_box(height, width, drawn, (0.08, 1.0), (3 / 4, 4 / 3)))
        elif kind == "center_crop":
            made.append(Crop((height - side) // 2, (width - side) // 2, side, side))
        else:
            top, left = int(drawn[0] * (height - side + 1)), int(drawn[1] * (width - side + 1))
            made.append(Crop(top, left, side, side))
    return made


def decoding(photos: list[bytes], rounds: int, table: Table, title: str) -> None:
    headers = [header for header in map(read_header, photos) if header is not None]
    contestants = ways()
    for kind in ("random_resized_crop", "center_crop", "random_crop"):
        crops = boxes(kind, headers)
        jobs = list(zip(photos, headers, crops, strict=True))
        for data, header, crop in jobs:
            want = whole(data, header, crop)
            assert all(
                np.array_equal(way(data, header, crop), want) for way in contestants.values()
            )
        spent = in_turns(jobs, contestants, rounds)
        for name, seconds in spent.items():
            table.add_row(
                f"{title}, {kind}({_SIZE})", name, f"{seconds * 1e3:.3f}",
                f"{seconds / spent['whole']:.2f}",
            )  # fmt: skip


def in_turns(jobs: list[Any], contestants: dict[str, Any], rounds: int) -> dict[str, float]:
    """Seconds a job on average, of the fastest run of each."""
    least = {name: np.full(len(jobs), np.inf) for name in contestants}
    for _ in range(rounds):
        for number, job in enumerate(jobs):
            for name, work in contestants.items():
                began = thread_time()
                work(*job)
                least[name][number] = min(least[name][number], thread_time() - began)
    return {name: float(seconds.mean()) for name, seconds in least.items()}


def views(photos: list[bytes], table: Table) -> None:
    """Crops of crops, and crops of what was resized: of pixels that are decoded already."""
    first, second = Crop(10, 10, 256, 256), Crop(16, 16, _SIZE, _SIZE)
    once = Crop(26, 26, _SIZE, _SIZE)
    images = [cv2.resize(decode_bytes(data, _MANY), (500, 375)) for data in photos[:100]]
    shrink, middle = Resize((375, 500), (256, 341), cv2.INTER_LINEAR), Crop(16, 58, _SIZE, _SIZE)
    fewer = Resize((328, 328), (_SIZE, _SIZE), cv2.INTER_LINEAR)
    around = Crop(23, 85, 328, 328)
    tried: dict[str, dict[str, Any]] = {
        "crop of a crop": {
            "two calls": lambda x: second.image(first.image(x, None), None),
            "one call": lambda x: once.image(x, None),
        },
        "resize_shorter(256).center_crop(224)": {
            "as written": lambda x: middle.image(shrink.image(x, None), None),
            "the crop first (other pixels)": lambda x: fewer.image(around.image(x, None), None),
        },
    }
    for title, contestants in tried.items():
        spent = in_turns([(image,) for image in images], contestants, 20)
        base = next(iter(spent.values()))
        for name, seconds in spent.items():
            table.add_row(title, name, f"{seconds * 1e3:.4f}", f"{seconds / base:.2f}")


def damage(photos: list[bytes], table: Table) -> None:
    """How many photos are refused when 512 of their bytes are zero, whole and of their upper 60 %;
    and how many pass in part with other pixels than they had."""
    rng = np.random.default_rng(0)
    refused = refused_in_part = wrong = tried = 0
    for data in photos:
        header = read_header(data)
        start = data.find(b"\xff\xda") + 20
        if header is None or not header.height_at or len(data) < start + 2000:
            continue
        tried += 1
        at = int(rng.integers(start, len(data) - 600))
        bad = data[:at] + bytes(512) + data[at + 512 :]
        crop = Crop(0, 0, int(0.6 * header.height), header.width)
        refused += fails(whole, bad, header, crop)
        if fails(part, bad, header, crop):
            refused_in_part += 1
        else:
            same = np.array_equal(part(bad, header, crop), whole(data, header, crop))
            wrong += not same
    table.add_row(f"{tried} photos, damaged", "refused whole", str(refused), "")
    table.add_row(f"{tried} photos, damaged", "refused in part", str(refused_in_part), "")
    table.add_row(f"{tried} photos, damaged", "pass in part, wrong pixels", str(wrong), "")


def fails(way: Way, data: bytes, header: Header, crop: Crop) -> bool:
    try:
        way(data, header, crop)
    except ValueError:
        return True
    return False


def main() -> None:
    cv2.setNumThreads(1)
    table = Table("what", "how", "ms a photo", "of the first")
    with tempfile.TemporaryDirectory(prefix="silva-bench-") as folder:
        small, large = Path(folder, "small"), Path(folder, "large")
        small.mkdir()
        large.mkdir()
        said = put_photos(small, _PHOTOS), put_large_photos(large, _LARGE_PHOTOS)
        photos = [path.read_bytes() for path in sorted(small.iterdir())]
        decoding(photos, 5, table, "photos")
        decoding([path.read_bytes() for path in sorted(large.iterdir())], 2, table, "12 megapixels")
        views(photos, table)
        damage(photos, table)
    Console(width=120).print(*said, table, sep="\n")


if __name__ == "__main__":
    main()
