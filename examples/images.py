"""Decodes, augments and batches photos, and trains a torch model for an epoch.

Run it: `python examples/images.py`
"""

import tempfile
from pathlib import Path

import cv2
import numpy as np
import torch

import silva as sv

CLASSES = ("dark", "light")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def write_photos(folder: Path, count: int) -> None:
    """Writes noise of two levels of brightness, so that there is something to learn."""
    for number in range(count):
        kind = number % 2
        pixels = np.random.default_rng(number).normal(80 + 90 * kind, 40, (96, 96, 3))
        path = folder / CLASSES[kind] / f"{number:04d}.jpg"
        path.parent.mkdir(exist_ok=True)
        cv2.imwrite(str(path), np.clip(pixels, 0, 255).astype(np.uint8))


def pipeline(folder: Path) -> sv.Pipeline:
    augmented = sv.image("bytes").decode().random_resized_crop(32).random_flip()
    return (
        sv.read_files(f"{folder}/*/*.jpg")
        .derive(label=lambda path: CLASSES.index(Path(path).parent.name))
        .shuffle(seed=0)
        .derive(image=augmented.normalize(MEAN, STD).to_chw())
        .select("image", "label")
        .batch(32)
    )


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as made:
        write_photos(Path(made), 400)
        train = pipeline(Path(made))
        print(train.explain(), end="\n\n")
        with train.loader() as loader:
            for batch in loader.to_torch():
                loss = torch.nn.functional.cross_entropy(model(batch["image"]), batch["label"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    print(f"loss after an epoch: {float(loss.detach()):.3f}")


if __name__ == "__main__":
    main()
