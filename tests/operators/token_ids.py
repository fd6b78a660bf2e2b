"""`python tests/operators/token_ids.py --data FOLDER [--lines N] [--fuzzed N] [--seed N]`.

Compares the ids that a pipeline gives with those of `tokenizers`, for tokenizers of many kinds that
are trained on the data: on lines of every file below FOLDER, drawn evenly from its files, and on
fuzzed strings, with the special tokens around a text and without. Files are text, also compressed
with gzip; the translations of a package are text in many languages:

    pip download --no-deps django && unzip -q django*.whl '*.po' -d FOLDER

Prints who runs each tokenizer and why. Ends with 1 if any ids differ.
"""

from __future__ import annotations

import argparse
import gzip
import random
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path
from time import perf_counter

import trained_tokenizers
from fuzzed_text import fuzzed
from tokenizers import Tokenizer

import silva as sv

_SIZE = 16_000
"""Tokens of a vocabulary."""
_TRAINED_ON = 20_000
"""Lines that tokenizers are trained on; the others are new to them."""
_LONGEST = 2_000
"""Characters of a line at most: files of one line would take all the time."""
_BLOCK = 5_000
KINDS = trained_tokenizers.FAST | trained_tokenizers.MORE | trained_tokenizers.SLOW


@dataclass
class Compared:
    """What became of one tokenizer."""

    by: str
    """The library that gave the ids, and why where it is not the fast one."""
    texts: int = 0
    different: int = 0
    first: str = ""
    """The first text with other ids."""


def read_lines(folder: Path, count: int, seed: int) -> list[str]:
    """So many different lines, taken in turn from files in a random order."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    random.Random(seed).shuffle(files)
    rounds = chain.from_iterable(zip_longest(*islice((_lines_of(path) for path in files), 2_000)))
    return list(islice(dict.fromkeys(line for line in rounds if line), count))


def _lines_of(path: Path) -> list[str]:
    data = path.read_bytes()
    if data.startswith(b"\x1f\x8b"):
        data = gzip.decompress(data)
    return [line[:_LONGEST] for line in data.decode(errors="replace").split("\n")]


def compare(tokenizer: Tokenizer, texts: Sequence[str], special: bool = False) -> Compared:
    """The ids of a pipeline beside those of the tokenizer itself."""
    alone = Tokenizer.from_str(tokenizer.to_str())
    alone.encode_special_tokens = tokenizer.encode_special_tokens
    alone.no_padding()
    alone.no_truncation()
    ids = sv.text("text").tokenize(tokenizer, special_tokens=special)
    loader = sv.from_columns({"text": list(texts)}).derive(ids=ids).select("ids").loader(workers=0)
    found = Compared("")
    with loader, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rows = iter(loader)
        for start in range(0, len(texts), _BLOCK):
            some = list(texts[start : start + _BLOCK])
            wanted = alone.encode_batch_fast(some, add_special_tokens=special)
            for text, encoding, row in zip(some, wanted, islice(rows, len(some)), strict=True):
                found.texts += 1
                if row["ids"].tolist() != encoding.ids:
                    found.different += 1
                    found.first = found.first or text
        (rule,) = [d for d in loader.facts().decisions if d.name == "fast_tokenizer"]
    given_up = [str(w.message) for w in caught if "instead" in str(w.message)]
    found.by = "fastokens" if rule.applied else f"tokenizers: {rule.why_not}"
    if given_up:
        found.by = f"tokenizers, after a while: {given_up[0]}"
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--fuzzed", type=int, default=20_000, help="strings for each tokenizer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", type=int, default=_SIZE, help="tokens of a vocabulary")
    parser.add_argument("--only", action="append", choices=list(KINDS), help="a tokenizer")
    given = parser.parse_args()
    began = perf_counter()
    lines = read_lines(given.data, given.lines, given.seed)
    texts = different = 0
    print(f"{len(lines):,} different lines; {given.fuzzed:,} strings of seed {given.seed}")
    for name in given.only or KINDS:
        tokenizer = KINDS[name](lines[:_TRAINED_ON], given.size)
        tokenizer = Tokenizer.from_str(tokenizer.to_str())  # whose scores are as the JSON has them
        added = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
        strings = fuzzed(given.fuzzed, given.seed, added[:40], lines)
        for special, some in ((False, lines + strings), (True, strings + lines[:_BLOCK])):
            found = compare(tokenizer, some, special)
            texts += found.texts
            different += found.different
            how = "with special tokens" if special else "plain"
            said = f"{name}, {how}: {found.texts:,} texts, {found.different:,} differ; {found.by}"
            print(said + (f"; first {found.first!r:.200}" if found.first else ""), flush=True)
    print(f"{texts:,} texts, {different:,} with other ids, {perf_counter() - began:.0f} s")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
