"""Text for a language model: tokenise, truncate, special tokens, pad, embed in 764 floats.

Everybody uses the same tokenizer, a byte-level BPE that is trained on the text beforehand. What
comes out is 700 kB a line, so that writing it takes longer than tokenising. Row 0 of the table is
the padding's and is zero, as in `torch.nn.Embedding(padding_idx=0)`.

`tokens` is the same without the table: tokenise, truncate, pad, batch.
"""

from __future__ import annotations

import os
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
from benchmarks.workload import BATCH, Contestant, Open, Setting, Target, Workload, sum_of

VOCABULARY = 27_000
LENGTH = 254
DIMENSIONS = 764
PAD, BEGIN, END = 0, 1, 2
_SPECIAL = ["<pad>", "<s>", "</s>"]


def of_lines(full: int, quick: int) -> Setting:
    """So many lines, and a tokenizer that is trained on them."""

    @contextmanager
    def setting(is_quick: bool) -> Iterator[dict[str, Any]]:
        with tempfile.TemporaryDirectory(prefix="silva-bench-") as folder:
            lines, vocabulary = f"{folder}/lines.txt", f"{folder}/bpe.json"
            data = put_text(Path(lines), quick if is_quick else full)
            train(lines, vocabulary)
            yield {"lines": lines, "vocabulary": vocabulary, "data": data}

    return setting


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
    setting=of_lines(10_240, quick=1_024),
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
    remarks="the same tokenizer and the same table in all; silva runs the tokenizer with fastokens",
)


def tokens_silva(lines: str, vocabulary: str) -> Open:
    import pyarrow.compute  # noqa: F401

    import silva as sv

    _ = sv.Loader
    ids = sv.text("text").tokenize(load(vocabulary)).truncate(LENGTH)
    ids = ids.add_tokens(before=[BEGIN], after=[END])
    rows = sv.read_lines(lines).derive(ids=ids).select("ids").batch(BATCH, pad=PAD)
    return lambda: rows.loader()


def tokens_one_thread(lines: str, vocabulary: str) -> Open:
    """Hugging Face's tokenizer in a plain loop."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer, found = load(vocabulary), read(lines)

    def batches() -> Iterator[np.ndarray]:
        for start in range(0, len(found), BATCH):
            texts = found[start : start + BATCH]
            encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
            yield padded([x.ids[:LENGTH] for x in encoded])

    return batches


def tokens_two_threads(lines: str, vocabulary: str) -> Open:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer, found = load(vocabulary), read(lines)

    def make(rows: range) -> np.ndarray:
        texts = found[rows.start : rows.stop]
        encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return padded([x.ids[:LENGTH] for x in encoded])

    return on_threads(len(found), BATCH, make)


def tokens_job(lines: str, vocabulary: str) -> mapping.Job:
    found = mapping.Job(read(lines), Tokens(vocabulary), BATCH, padded)
    found.of_batch(found.items[:1])
    return found


def tokens_dataloader(lines: str, vocabulary: str) -> Open:
    return mapping.dataloader(tokens_job(lines, vocabulary))


def tokens_huggingface(lines: str, vocabulary: str) -> Open:
    return mapping.huggingface(tokens_job(lines, vocabulary))


def tokens_tensorflow(lines: str, vocabulary: str) -> Open:
    import tensorflow as tf

    tokenizer = load(vocabulary)

    def tokenize(batch: Any) -> np.ndarray:
        texts = [line.decode() for line in batch]
        encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return padded([x.ids[:LENGTH] for x in encoded])

    def ids(batch: Any) -> Any:
        return tf.numpy_function(tokenize, [batch], tf.int64)

    def batches() -> Any:
        dataset = tf.data.TextLineDataset(lines).batch(BATCH)
        dataset = dataset.map(ids, num_parallel_calls=mapping.WORKERS).prefetch(mapping.WORKERS)
        return dataset.as_numpy_iterator()

    return batches


_PLAIN = "Hugging Face tokenizers by hand"
_TOKENS_PEERS = (
    Contestant("DataLoader, 2 workers", tokens_dataloader, environment=_TORCH),
    Contestant("HF datasets", tokens_huggingface, environment=_TORCH, long=True),
    Contestant("tf.data, same tokenizer", tokens_tensorflow, environment="tensorflow"),
)

TOKENS = Workload(
    name="tokens",
    title="Tokens: byte-level BPE, truncate, special tokens, pad, batches of 32",
    setting=of_lines(51_200, quick=2_048),
    contestants=(
        Contestant(_PLAIN, tokens_one_thread),
        Contestant(_HAND, tokens_two_threads),
        Contestant("silva auto", tokens_silva, key="ids"),
        *_TOKENS_PEERS,
    ),
    targets=(
        Target("silva auto", at_most=0.25, of=_PLAIN, metric="cpu_row"),
        Target("silva auto", at_least=2.5, of=tuple(peer.name for peer in _TOKENS_PEERS)),
    ),
    checksum=sum_of,
    rounds=3,
    remarks="the same tokenizer in all; silva runs it with fastokens, which it starts in the clock",
)
