"""Text for a language model: tokenise, truncate, special tokens, pad, embed in 764 floats.

Everybody uses the same tokenizer, a byte-level BPE that is trained on the text beforehand. What
comes out is 700 kB a line, so that writing it takes as long as tokenising. Row 0 of the table is
the padding's and is zero, as in `torch.nn.Embedding(padding_idx=0)`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.by_hand import on_threads
from benchmarks.data import put_text
from benchmarks.peers import mapping
from benchmarks.workload import BATCH, Contestant, Open, Target, Workload

VOCABULARY = 27_000
LENGTH = 254
DIMENSIONS = 764
PAD, BEGIN, END = 0, 1, 2
_SPECIAL = ["<pad>", "<s>", "</s>"]


@contextmanager
def setting(quick: bool) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="silva-bench-") as folder:
        lines, vocabulary = f"{folder}/lines.txt", f"{folder}/bpe.json"
        data = put_text(Path(lines), 1_024 if quick else 10_240)
        train(lines, vocabulary)
        yield {"lines": lines, "vocabulary": vocabulary, "data": data}


def train(lines: str, path: str) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=_SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train([lines], trainer)
    tokenizer.save(path)


@cache
def load(vocabulary: str) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(vocabulary)


@cache
def table() -> np.ndarray:
    found = np.random.default_rng(0).standard_normal((VOCABULARY, DIMENSIONS), np.float32)
    found[PAD] = 0
    return found


def silva_auto(lines: str, vocabulary: str) -> Open:
    import pyarrow.compute  # noqa: F401  what others import before the clock starts, silva may too

    import silva as sv

    _ = sv.Loader  # the engine, imported before the clock starts, as torch is

    ids = sv.text("text").tokenize(load(vocabulary)).truncate(LENGTH)
    ids = ids.add_tokens(before=[BEGIN], after=[END])
    rows = sv.read_lines(lines).derive(ids=ids).select("ids").batch(BATCH, pad=PAD)
    embedded = rows.derive(x=sv.list("ids").embed(table())).select("x")
    return lambda: embedded.loader()


def read(lines: str) -> list[str]:
    return Path(lines).read_text().splitlines()


def padded(rows: Sequence[Any]) -> np.ndarray:
    """(rows, longest), with the special tokens around each."""
    out = np.full((len(rows), max(map(len, rows)) + 2), PAD, np.int64)
    out[:, 0] = BEGIN
    for place, ids in zip(out, rows, strict=True):
        place[1 : 1 + len(ids)] = ids
        place[1 + len(ids)] = END
    return out


def two_threads(lines: str, vocabulary: str) -> Open:
    """Two threads tokenise; the reader's own gathers the vectors: there the memory of batches that
    are gone is used again, where threads of a pool would get new pages from the system."""
    tokenizer, vectors, found = load(vocabulary), table(), read(lines)

    def make(rows: range) -> np.ndarray:
        texts = found[rows.start : rows.stop]
        encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return padded([x.ids[:LENGTH] for x in encoded])

    tokens = on_threads(len(found), BATCH, make)
    return lambda: (vectors[ids] for ids in tokens())


class Tokens:
    """One line to its ids: what a dataset's `__getitem__` does."""

    def __init__(self, vocabulary: str) -> None:
        self._vocabulary = vocabulary

    def __call__(self, line: str) -> np.ndarray:
        ids = load(self._vocabulary).encode(line, add_special_tokens=False).ids
        return np.array(ids[:LENGTH], np.int64)


def embedded(rows: Sequence[Any]) -> np.ndarray:
    """A batch, padded and then embedded; on one thread numpy is faster at it than torch."""
    return table()[padded(rows)]


def job(lines: str, vocabulary: str) -> mapping.Job:
    """The tokenizer and the table are loaded here, before the clock starts."""
    found = mapping.Job(read(lines), Tokens(vocabulary), BATCH, embedded)
    found.of_batch(found.items[:1])
    return found


def dataloader(lines: str, vocabulary: str) -> Open:
    return mapping.dataloader(job(lines, vocabulary))


def dataloader_0(lines: str, vocabulary: str) -> Open:
    return mapping.dataloader(job(lines, vocabulary), workers=0)


def torchdata_threads(lines: str, vocabulary: str) -> Open:
    return mapping.torchdata_threads(job(lines, vocabulary))


def torchdata_processes(lines: str, vocabulary: str) -> Open:
    return mapping.torchdata_processes(job(lines, vocabulary))


def grain_threads(lines: str, vocabulary: str) -> Open:
    return mapping.grain_threads(job(lines, vocabulary))


def spdl(lines: str, vocabulary: str) -> Open:
    return mapping.spdl_threads(job(lines, vocabulary))


def huggingface(lines: str, vocabulary: str) -> Open:
    return mapping.huggingface(job(lines, vocabulary))


def ray_data(lines: str, vocabulary: str) -> Open:
    return mapping.ray_rows(job(lines, vocabulary))


def tensorflow_data(lines: str, vocabulary: str) -> Open:
    """The tokenizer in Python, the table in TensorFlow."""
    import tensorflow as tf

    tokenizer, vectors = load(vocabulary), tf.constant(table())

    def tokenize(batch: Any) -> np.ndarray:
        texts = [line.decode() for line in batch]
        encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return padded([x.ids[:LENGTH] for x in encoded])

    def embed(batch: Any) -> Any:
        ids = tf.numpy_function(tokenize, [batch], tf.int64)
        return tf.gather(vectors, tf.ensure_shape(ids, (None, None)))

    def batches() -> Any:
        dataset = tf.data.TextLineDataset(lines).batch(BATCH)
        dataset = dataset.map(embed, num_parallel_calls=mapping.WORKERS).prefetch(mapping.WORKERS)
        return dataset.as_numpy_iterator()

    return batches


def some_of(batch: Any) -> float:
    """Four of the 764 numbers of each token; the padding adds nothing."""
    return float(np.asarray(batch)[:, :, ::191].sum(dtype=np.float64))


_TORCH, _HAND = "torch", "two threads by hand"
_PEERS = (
    Contestant("DataLoader, 2 workers", dataloader, environment=_TORCH),
    Contestant("DataLoader, 0 workers", dataloader_0, environment=_TORCH, long=True),
    Contestant("torchdata.nodes, threads", torchdata_threads, environment=_TORCH, long=True),
    Contestant("torchdata.nodes, processes", torchdata_processes, environment=_TORCH),
    Contestant("Grain, threads", grain_threads, environment=_TORCH),
    Contestant("SPDL, threads", spdl, environment="spdl", long=True),
    Contestant("HF datasets", huggingface, environment=_TORCH, long=True),
    Contestant("Ray Data", ray_data, environment="ray", long=True),
    Contestant("tf.data, same tokenizer", tensorflow_data, environment="tensorflow"),
)

WORKLOAD = Workload(
    name="text",
    title="Text: byte-level BPE, truncate, special tokens, pad, embed in 764, batches of 32",
    setting=setting,
    contestants=(
        Contestant(_HAND, two_threads, limit=True),
        Contestant("silva auto", silva_auto, key="x"),
        *_PEERS,
    ),
    targets=(
        Target("silva auto", at_least=0.9, of=_HAND),
        Target("silva auto", at_least=2.5, of=tuple(peer.name for peer in _PEERS)),
        Target("silva auto", at_most=1.15, of=_HAND, metric="cpu_row"),
        Target("silva auto", at_most=1, of="DataLoader, 2 workers", metric="peak"),
    ),
    checksum=some_of,
    tolerance=1e-6,
    shape=(None, DIMENSIONS),
    rounds=3,
    remarks="the same tokenizer (Hugging Face) and the same table in all",
)
