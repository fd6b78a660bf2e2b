"""Packs text into rows of one length, for training a language model.

Run it: `python examples/packing.py`
"""

import tempfile
from pathlib import Path

import numpy as np

import silva as sv

LENGTH = 128
WORDS = ["the", "forest", "is", "green", "and", "a", "small", "bird", "sings", "in", "it"]


def write_text(path: Path, lines: int) -> None:
    rng = np.random.default_rng(0)
    sizes = rng.integers(3, 60, lines)
    path.write_text("".join(" ".join(rng.choice(WORDS, size)) + "\n" for size in sizes))


def tokens(text: str) -> list[int]:
    """Returns one token per byte; use your own tokenizer here."""
    return list(text.encode())


def pipeline(path: Path) -> sv.Pipeline:
    return (
        sv.read_lines(path)
        .shuffle(seed=0)
        .derive(tokens=tokens, reads="text")
        .pack("tokens", LENGTH)
        .batch(16)
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "corpus.txt"
        write_text(path, 2000)
        rows = used = 0
        with pipeline(path).loader() as loader:
            for batch in loader:
                rows += len(batch["tokens"])
                used += int((batch["segment_ids"] > 0).sum())  # 0 marks padding
    print(f"{rows:,} rows of {LENGTH} tokens, {used / (rows * LENGTH):.1%} of them used")


if __name__ == "__main__":
    main()
