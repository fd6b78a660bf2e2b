"""Draws `operators.jpg`, image operators on one photo: `python docs/images/operators.py`."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle
from sklearn.datasets import load_sample_image

import silva as sv

PHOTO = np.ascontiguousarray(load_sample_image("flower.jpg")[:, 100:560])
BOXES = [[75.0, 80, 350, 360]]
X = sv.image("image", boxes="boxes")
STEPS = {
    "the photo": X.crop(0, 0, *PHOTO.shape[:2]),
    "resize(120, 220)": X.resize(120, 220),
    "resize_shorter(120)": X.resize_shorter(120, "area"),
    "crop(40, 150, 250, 300)": X.crop(40, 150, 250, 300),
    "center_crop(260)": X.center_crop(260),
    "random_resized_crop(224)": X.random_resized_crop(224),
    "pad(40)": X.pad(40, fill=(230, 200, 60)),
    "flip()": X.flip(),
    "rotate(20)": X.rotate(20),
    "affine(15, shear=10)": X.affine(15, shear=10),
    "random_zoom_out()": X.random_zoom_out(probability=1.0),
    "random_iou_crop()": X.random_iou_crop(overlaps=(0.3,)),
    "color_jitter(…)": X.color_jitter(0.4, 0.4, 0.4, 0.2),
    "solarize(128)": X.solarize(128),
    "posterize(2)": X.posterize(2),
    "equalize()": X.equalize(),
    "sharpness(0)": X.sharpness(0),
    "gaussian_blur(31, 8.0)": X.gaussian_blur(31, 8.0),
    "random_erasing()": X.random_erasing(1.0),
    "grayscale()": X.grayscale(),
}


def main() -> None:
    figure, places = plt.subplots(4, 5, figsize=(13, 10.1), layout="constrained")
    rows = sv.from_items([{"image": PHOTO, "boxes": BOXES}])
    for place, (title, step) in zip(places.flat, STEPS.items(), strict=True):
        (made,) = rows.derive(step, into=("image", "boxes")).head(1)
        place.imshow(made["image"], cmap="gray", vmin=0, vmax=255)
        for left, top, right, bottom in made["boxes"]:
            box = Rectangle((left, top), right - left, bottom - top, fill=False, ec="white", lw=1.6)
            place.add_patch(box)
        place.set_title(title, fontsize=11, family="monospace")
        place.axis("off")
    figure.savefig(Path(__file__).with_name("operators.jpg"), dpi=80)


if __name__ == "__main__":
    main()
