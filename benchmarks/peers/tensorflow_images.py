"""Image steps in TensorFlow's own operations, with torchvision's meaning; floats from 0 to 255."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.workload import Open


def batches(items: Any, step: Callable[..., Any], batch: int) -> Open:
    """Parallel map, batch, prefetch, all tuned by itself, on a pool of two threads."""
    import tensorflow as tf

    def read() -> Any:
        dataset = tf.data.Dataset.from_tensor_slices(items)
        dataset = dataset.map(step, num_parallel_calls=tf.data.AUTOTUNE)
        dataset = dataset.batch(batch).prefetch(tf.data.AUTOTUNE)
        options = tf.data.Options()
        options.threading.private_threadpool_size = 2
        return dataset.with_options(options).as_numpy_iterator()

    return read


def sample_box(shape: Any, scale: tuple[float, float]) -> tuple[Any, Any]:
    """Top left corner and size of a random resized crop."""
    import tensorflow as tf

    begin, size, _ = tf.image.sample_distorted_bounding_box(
        shape,
        tf.zeros((1, 0, 4)),
        min_object_covered=0.0,
        aspect_ratio_range=(3 / 4, 4 / 3),
        area_range=scale,
        max_attempts=10,
        use_image_if_no_bounding_boxes=True,
    )
    return begin, size


def decode_and_crop(data: Any, size: int, scale: tuple[float, float] = (0.08, 1.0)) -> Any:
    import tensorflow as tf

    begin, extent = sample_box(tf.io.extract_jpeg_shape(data), scale)
    window = tf.stack([begin[0], begin[1], extent[0], extent[1]])
    part = tf.io.decode_and_crop_jpeg(data, window, channels=3, dct_method="INTEGER_FAST")
    resized = tf.image.resize(part, (size, size))
    resized.set_shape((size, size, 3))
    return resized


def random_flip(photo: Any) -> Any:
    import tensorflow as tf

    return tf.image.random_flip_left_right(photo)


def color_jitter(photo: Any, amounts: tuple[float, float, float], hue: float) -> Any:
    """Brightness, contrast, saturation and hue in random order."""
    import tensorflow as tf

    brightness, contrast, saturation = (
        tf.random.uniform((), max(0.0, 1 - a), 1 + a) for a in amounts
    )
    shift = tf.random.uniform((), -hue, hue)

    def blend(photo: Any, other: Any, factor: Any) -> Any:
        return tf.clip_by_value(photo * factor + other * (1 - factor), 0.0, 255.0)

    def steps(photo: Any) -> list[Callable[[], Any]]:
        return [
            lambda: tf.clip_by_value(photo * brightness, 0.0, 255.0),
            lambda: blend(photo, tf.reduce_mean(tf.image.rgb_to_grayscale(photo)), contrast),
            lambda: blend(photo, tf.image.rgb_to_grayscale(photo), saturation),
            lambda: tf.image.adjust_hue(photo, shift),
        ]

    shape = photo.shape
    for number in tf.unstack(tf.random.shuffle(tf.range(4)), num=4):
        photo = tf.switch_case(number, steps(photo))
        photo.set_shape(shape)
    return photo


def gaussian_blur(photo: Any, kernel: int, sigma: tuple[float, float]) -> Any:
    """One channel, by a row and a column of weights; mirrored at the border, as torchvision."""
    import tensorflow as tf

    half = kernel // 2
    offsets = tf.range(-half, half + 1, dtype=tf.float32)
    weights = tf.exp(-(offsets**2) / (2 * tf.random.uniform((), *sigma) ** 2))
    weights = weights / tf.reduce_sum(weights)
    padded = tf.pad(photo, [[half, half], [half, half], [0, 0]], mode="REFLECT")[None]
    across = tf.nn.conv2d(padded, weights[None, :, None, None], 1, "VALID")
    return tf.nn.conv2d(across, weights[:, None, None, None], 1, "VALID")[0]


def normalize(photo: Any, mean: tuple[float, ...], std: tuple[float, ...]) -> Any:
    """(x / 255 - mean) / std, as one multiplication and one addition."""
    scale = [1 / (255 * s) for s in std]
    offset = [-m / s for m, s in zip(mean, std, strict=True)]
    return photo * scale + offset


def iou_crop(
    photo: Any,
    boxes: Any,
    labels: Any,
    overlaps: tuple[float, ...],
    scale: tuple[float, float],
    ratio: tuple[float, float],
) -> tuple[Any, Any, Any]:
    """A part by TensorFlow's own sampler; boxes (left, top, right, bottom) as shares of it."""
    import tensorflow as tf

    shape = tf.shape(photo)
    height, width = tf.cast(shape[0], tf.float32), tf.cast(shape[1], tf.float32)
    left, top, right, bottom = tf.unstack(boxes, num=4, axis=1)
    marks = tf.stack([top / height, left / width, bottom / height, right / width], axis=1)
    least = tf.gather(tf.constant(overlaps), tf.random.uniform((), 0, len(overlaps), tf.int32))

    def part() -> tuple[Any, Any]:
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            shape,
            marks[None],
            min_object_covered=least,
            aspect_ratio_range=ratio,
            area_range=(scale[0] ** 2, scale[1] ** 2),
            max_attempts=40,
        )
        return begin, tf.concat([size[:2], [3]], axis=0)

    begin, size = tf.cond(least >= 1, lambda: (tf.zeros(3, tf.int32), shape), part)
    photo = tf.slice(photo, begin, size)
    origin, extent = tf.cast(begin[:2][::-1], tf.float32), tf.cast(size[:2][::-1], tf.float32)
    low, high = (boxes[:, :2] - origin) / extent, (boxes[:, 2:] - origin) / extent
    centre = (low + high) / 2
    kept = tf.reduce_all((centre > 0) & (centre < 1), axis=1)
    moved = tf.clip_by_value(tf.concat([low, high], axis=1), 0.0, 1.0)
    return photo, tf.boolean_mask(moved, kept), tf.boolean_mask(labels, kept)


def flip_with_boxes(photo: Any, boxes: Any) -> tuple[Any, Any]:
    """Mirrored with its boxes (shares of the sides), or left as it is."""
    import tensorflow as tf

    def mirrored() -> tuple[Any, Any]:
        left, top, right, bottom = tf.unstack(boxes, num=4, axis=1)
        return photo[:, ::-1], tf.stack([1 - right, top, 1 - left, bottom], axis=1)

    return tf.cond(tf.random.uniform(()) < 0.5, mirrored, lambda: (photo, boxes))
