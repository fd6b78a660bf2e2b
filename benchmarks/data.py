"""What contestants read: real photos, speech and text where they are, made ones elsewhere.

Looked for in the folder `SILVA_BENCH_DATA`, then in `shared/data` beside the repository. What was
not found is made: photos cut from the two that scikit-learn brings along, tones that rise and fall
like speech, and the sources of Python's standard library as text. The output says which was used.
"""

from __future__ import annotations

import os
import sysconfig
import tempfile
import wave
from itertools import cycle, islice
from pathlib import Path

import numpy as np

_BESIDE = Path(__file__).parents[2] / "shared" / "data"
_PHOTOS = (".jpg", ".jpeg", ".JPG", ".JPEG")
SPEECH_RATE = 8000
_LARGE = 16


def find(*endings: str) -> tuple[list[Path], str]:
    """Files with one of these endings, sorted, and in words where they are from."""
    given = os.environ.get("SILVA_BENCH_DATA")
    for folder, words in ((given, "from SILVA_BENCH_DATA"), (_BESIDE, "from shared/data")):
        if folder is None or not Path(folder).is_dir():
            continue
        found = sorted(path for path in Path(folder).rglob("*") if path.suffix in endings)
        if found:
            return found, words
    return [], "made here"


def put_photos(folder: Path, count: int) -> str:
    """Fills `folder` with so many JPEG files, repeating those there are; says what they are."""
    found, words = find(*_PHOTOS)
    if not found:
        cut_photos(folder, count)
        return f"data: {count} photos cut from scikit-learn's two"
    _link(found, folder, count, ".jpg")
    return f"data: {count} photos, of them {min(count, len(found))} different, {words}"


def put_large_photos(folder: Path, count: int) -> str:
    """Fills `folder` with photos of 12 megapixels: sixteen that are enlarged here, repeated."""
    import cv2
    import simplejpeg

    with tempfile.TemporaryDirectory(prefix="silva-bench-") as small:
        put_photos(Path(small), _LARGE)
        for number, path in enumerate(sorted(Path(small).iterdir())):
            photo = simplejpeg.decode_jpeg(path.read_bytes(), "RGB")
            large = cv2.resize(photo, (4000, 3000), interpolation=cv2.INTER_CUBIC)
            data = simplejpeg.encode_jpeg(large, quality=90, colorspace="RGB")
            (folder / f"{number:05}.jpg").write_bytes(data)
    made = sorted(folder.iterdir())
    for number in range(_LARGE, count):
        os.symlink(made[number % _LARGE], folder / f"{number:05}.jpg")
    return f"data: {count} photos, of them {_LARGE} different, enlarged to 12 megapixels here"


def put_speech(folder: Path, count: int) -> str:
    """Fills `folder` with so many WAV files."""
    found, words = find(".wav")
    if not found:
        for number in range(count):
            sing(folder / f"{number:05}.wav", number)
        return f"data: {count} clips of rising and falling tones, made here"
    _link(found, folder, count, ".wav")
    return f"data: {count} clips, of them {min(count, len(found))} different, {words}"


def put_text(path: Path, count: int) -> str:
    """Writes so many lines of text, none of them empty, repeating those there are."""
    found, words = find(".txt")
    lines = [x for file in found for x in file.read_text(errors="replace").splitlines()]
    lines = [x.strip() for x in lines if x.strip()]
    if not lines:
        lines, words = source_paragraphs(), "from Python's standard library"
    path.write_text("\n".join(islice(cycle(lines), count)) + "\n")
    return f"data: {count} lines, of them {min(count, len(lines))} different, {words}"


def cut_photos(folder: Path, count: int) -> None:
    """Varied parts of real photos, about 500 × 375, as most of ImageNet."""
    import simplejpeg
    from sklearn.datasets import load_sample_images

    photos = load_sample_images().images
    rng = np.random.default_rng(0)
    for number in range(count):
        photo = photos[number % len(photos)]
        height, width = int(rng.integers(300, 427)), int(rng.integers(400, 640))
        top = int(rng.integers(0, photo.shape[0] - height + 1))
        left = int(rng.integers(0, photo.shape[1] - width + 1))
        part = np.ascontiguousarray(photo[top : top + height, left : left + width])
        data = simplejpeg.encode_jpeg(part, quality=92, colorspace="RGB")
        (folder / f"{number:05}.jpg").write_bytes(data)


def sing(path: Path, number: int) -> None:
    """A third to two thirds of a second of a gliding tone with overtones, as 16-bit WAV."""
    rng = np.random.default_rng(number)
    time = np.arange(int(rng.integers(2700, 5300))) / SPEECH_RATE
    pitch = rng.uniform(90, 250) * (1 + 0.3 * np.sin(2 * np.pi * rng.uniform(1, 4) * time))
    phase = 2 * np.pi * np.cumsum(pitch) / SPEECH_RATE
    sound = sum(np.sin(k * phase) / k for k in range(1, 9)) + 0.05 * rng.standard_normal(len(time))
    samples = (sound / np.abs(sound).max() * 12_000).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SPEECH_RATE)
        file.writeframes(samples.tobytes())


def source_paragraphs() -> list[str]:
    """Eight lines of source at a time: about as long as a paragraph of prose."""
    found = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        lines = [x.strip() for x in path.read_text(errors="replace").splitlines() if x.strip()]
        found += [" ".join(lines[i : i + 8]) for i in range(0, len(lines), 8)]
    return found


def _link(found: list[Path], folder: Path, count: int, ending: str) -> None:
    for number, path in enumerate(islice(cycle(found), count)):
        os.symlink(path.resolve(), folder / f"{number:05}{ending}")
