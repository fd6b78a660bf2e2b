"""Draws `explain.png`, the page of docs/explain.md. Run it: `python docs/images/explain.py`; needs
chromium."""

import contextlib
import subprocess
import tempfile
from pathlib import Path

import cv2
import numpy as np

import silva as sv

CLASSES = ["dark", "light"]
HERE = Path(__file__).resolve().parent


def photos(folder: Path, count: int) -> None:
    for n in range(count):
        kind = n % 2
        coarse = np.random.default_rng(n).normal(80 + 90 * kind, 40, (24, 32, 3))
        pixels = cv2.resize(np.clip(coarse, 0, 255).astype(np.uint8), (640, 480))
        file = folder / CLASSES[kind] / f"{n:04d}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(file), pixels)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        photos(Path("photos"), 3000)
        train = (
            sv.read_files("photos/*/*.jpg")
            .derive(label=lambda path: CLASSES.index(path.split("/")[-2]))
            .derive(size=lambda bytes: len(bytes))
            .shuffle(seed=0)
            .derive(image=sv.image("bytes").decode().random_resized_crop(96).random_flip())
            .derive(image=sv.image("image").to_float())
            .filter(lambda label: label == 1)
            .select("image", "label")
            .batch(32)
        )
        found = train.explain(analyze=True)
        print(found)
        page = Path(folder, "explain.html")
        page.write_text(found.to_html(), encoding="utf-8")
        browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        shot = ["--window-size=1120,1620", f"--screenshot={HERE / 'explain.png'}", page.as_uri()]
        subprocess.run([*browser, *shot], check=True)


if __name__ == "__main__":
    main()
