"""Folders of models in the layout of sentence-transformers: what their author meant to compute.

`modules.json` lists the modules that a text goes through. Those that silva knows are a transformer,
a pooling and a normalisation; a folder with any other is refused, as is everything that would be
computed in another way than its author meant.
"""

from __future__ import annotations

import functools
import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from silva.errors import SilvaError

_MOST_JSON = 64 << 20
"""Bytes of a file of settings, or of a tokenizer, at most."""
_SETTINGS = (
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "tokenizer_config.json",
)
"""Files that may change what is computed, where they are."""
_POOLINGS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
_LENGTH = 512
"""Tokens of a text where nothing says how many the model takes."""


@dataclass(frozen=True)
class Layout:
    """What a folder says about how a text becomes a vector."""

    files: tuple[str, ...]
    """The files that this depends on, within the folder."""
    max_tokens: int
    pooling: str
    """`mean`, or `cls` for the vector of the first token."""
    normalizes: bool
    """Whether vectors have length 1."""
    lowers: bool
    """Whether texts are lower-cased before anything else."""
    prefix: str
    """What is put before each text."""


def read_layout(folder: Path, weights: str, prompt: str | None) -> Layout:
    """The layout of a folder that embeds texts. `prompt` names one of its prompts."""
    names = ["config.json", "tokenizer.json", weights]
    check_files(folder, names)
    names += [name for name in _SETTINGS if (folder / name).is_file()]
    pooling, normalizes = "mean", True
    pools = sorted(str(path.relative_to(folder)) for path in folder.glob("*/config.json"))
    if (folder / "modules.json").is_file():
        modules = _modules(folder)
        pools = [f"{path}/config.json" for kind, path in modules if kind == "Pooling"]
        normalizes = any(kind == "Normalize" for kind, _ in modules)
    else:
        pools = [name for name in pools if name.partition("/")[0].endswith("_Pooling")]
    for name in pools:
        pooling = _pooling(folder / name)
    bert = _optional_json(folder / "sentence_bert_config.json")
    return Layout(
        (*names, *pools),
        int(bert.get("max_seq_length") or _positions(folder)),
        pooling,
        normalizes,
        bool(bert.get("do_lower_case")),
        _prefix(folder, prompt),
    )


def check_files(folder: Path, names: Sequence[str]) -> None:
    """Refuses a folder without these files, and one that brings code."""
    for name in names:
        if not (folder / name).is_file():
            pickled = sorted(path.name for path in folder.glob("*.bin"))
            told = f"; {pickled[0]!r} is pickled, which silva does not read" if pickled else ""
            raise SilvaError(f"{str(folder)!r} has no {name}{told}")
    if "auto_map" in read_json(folder / "config.json"):
        raise SilvaError(f"{str(folder)!r} brings code of its own, which silva does not run")


def _modules(folder: Path) -> list[tuple[str, str]]:
    """The kinds and folders of the modules, in order."""
    path = folder / "modules.json"
    try:
        listed = msgspec.json.decode(read(path), type=list[dict[str, Any]])
        modules = [(str(one["type"]), str(one["path"])) for one in listed]
    except (msgspec.MsgspecError, KeyError) as error:
        raise SilvaError(f"{str(path)!r} is damaged: {error}") from error
    known = {f"sentence_transformers.models.{kind}": kind for kind in _ORDER}
    for kind, _ in modules:
        if kind not in known:
            raise SilvaError(
                f"{str(path)!r} has a module {kind}, which silva does not know: it runs "
                f"{', '.join(_ORDER)}"
            )
    found = [(known[kind], path) for kind, path in modules]
    kinds = [kind for kind, _ in found]
    if kinds not in (list(_ORDER), list(_ORDER[:2])) or found[0][1]:
        raise SilvaError(
            f"{str(path)!r} lists {', '.join(kinds)}: silva runs a transformer in the folder "
            "itself, a pooling, and a normalisation"
        )
    return found


_ORDER = ("Transformer", "Pooling", "Normalize")


def _pooling(path: Path) -> str:
    modes = read_json(path)
    on = [key for key, value in modes.items() if key.startswith("pooling_mode_") and value]
    named = {"mean": "mean", "cls": "cls"}.get(str(modes.get("pooling_mode")))
    found = _POOLINGS.get(on[0]) if len(on) == 1 else None
    if found is None and (on or named is None):
        raise SilvaError(
            f"{str(path)!r} asks for another pooling than the mean or the first token (CLS), which "
            "silva knows"
        )
    if modes.get("include_prompt") is False:
        raise SilvaError(f"{str(path)!r} leaves prompts out of the mean, which silva does not")
    made = found or named
    assert made is not None
    return made


def _positions(folder: Path) -> int:
    return int(read_json(folder / "config.json").get("max_position_embeddings") or _LENGTH)


def _prefix(folder: Path, prompt: str | None) -> str:
    """The text of a prompt that the folder names, or of the one that it takes by itself."""
    config = _optional_json(folder / "config_sentence_transformers.json")
    prompts = config.get("prompts") or {}
    name = prompt if prompt is not None else config.get("default_prompt_name")
    if name is None:
        return ""
    if name not in prompts:
        there = ", ".join(map(repr, prompts)) or "none"
        raise SilvaError(f"{str(folder)!r} has no prompt {name!r}: there are {there}")
    return str(prompts[name])


def _optional_json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def read_json(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(read(path), type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise SilvaError(f"{str(path)!r} is damaged: {error}") from error


def read(path: Path) -> bytes:
    """The contents of a small file."""
    if path.stat().st_size > _MOST_JSON:
        raise SilvaError(f"{str(path)!r} has over {_MOST_JSON:,} bytes")
    return path.read_bytes()


def read_tokenizer(path: Path, most: int | None) -> Any:
    """A tokenizer that neither pads nor, without `most`, cuts."""
    from tokenizers import Tokenizer

    try:
        found = Tokenizer.from_str(read(path).decode())
    except Exception as error:
        raise SilvaError(f"{str(path)!r} is no tokenizer: {error}") from error
    found.no_padding()
    if most is None:
        found.no_truncation()
    else:
        found.enable_truncation(most)
    return found


def digest_of(folder: str, names: Sequence[str]) -> str:
    """The digest of some files by their contents; computed again when one of them has changed."""
    states = []
    for name in names:
        path = os.path.join(folder, name)
        try:
            found = os.stat(path)
        except OSError as error:
            raise SilvaError(f"{path!r} cannot be read: {error.strerror}") from error
        if not stat.S_ISREG(found.st_mode):
            raise SilvaError(f"{path!r} is not a plain file")
        states.append((path, found.st_size, found.st_mtime_ns, found.st_ino))
    return _digest(tuple(states))


@functools.lru_cache(maxsize=64)
def _digest(states: tuple[tuple[str, int, int, int], ...]) -> str:
    made = hashlib.blake2b(digest_size=16)
    for path, *_ in states:
        with open(path, "rb") as file:
            made.update(hashlib.file_digest(file, _new_digest).digest())
    return made.hexdigest()


_new_digest: Callable[[], Any] = functools.partial(hashlib.blake2b, digest_size=32)
