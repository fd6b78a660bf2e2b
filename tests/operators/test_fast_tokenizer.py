"""fastokens in place of tokenizers: the same ids, or not used."""

from __future__ import annotations

import gzip
import importlib.util
import os
import random
import sys
import threading
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import token_ids
import trained_tokenizers
from fuzzed_text import fuzzed
from hypothesis import given, settings
from hypothesis import strategies as st
from odd_tokenizers import draw_texts, draw_tokenizer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

import silva as sv
from silva.operators.text import fast_tokenizer
from silva.operators.text.fast_tokenizer import COMPARED_ROWS, FastTokenizer, find_fast, hard_texts
from silva.operators.text.tokenizer import JsonTokenizer, read_tokenizer
from silva.plan.expr import Call, walk
from silva.plan.fingerprint import fingerprint
from silva.rewrite.runner import optimize
from silva.testing import assert_same_stream

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("fastokens") is None, reason="fastokens is not installed"
)

SENTENCES = {
    "English": "The forest is green, and a small bird sings in it; it's 1,234 years old!",
    "German": "Der Wald ist grün, und ein kleiner Vogel singt größere Lieder auf der Straße.",
    "French": "La forêt est verte, déjà l'oiseau chante où çà et là naît l'été.",
    "Russian": "Лес зелёный, и в нём поёт маленькая птица, ещё раз в 2024 году.",
    "Greek": "Το δάσος είναι πράσινο και ένα μικρό πουλί τραγουδά μέσα σε αυτό.",
    "Japanese": "森は緑で、小さな鳥がその中で歌っています。テスト、カタカナ。",
    "Chinese": "森林是绿色的，一只小鸟在里面唱歌，已经唱了三百年。",
    "Korean": "숲은 푸르고 작은 새가 그 안에서 노래합니다.",
    "Hindi": "जंगल हरा है और उसमें एक छोटी चिड़िया गाती है।",
    "Thai": "ป่าเป็นสีเขียวและมีนกตัวเล็กๆร้องเพลงอยู่ในนั้น",
    "Arabic": "الغابة خضراء وطائر صغير يغني فيها منذ ١٢٣ سنة.",
    "Hebrew": "היער ירוק וציפור קטנה שרה בו.",
    "code": "def f(x):\n\treturn {'a': x**2, \"b\": [1, 2.5e-3]}  # naïve\n",
    "emoji": "👩‍🚀 fliegt 🚀🚀 nach 🇩🇪, 👍🏽 ❤️ 1️⃣ 👨‍👩‍👧‍👦!",
}


def make_lines(count: int, seed: int = 0) -> list[str]:
    """Lines of several languages: words and characters of the sentences, newly mixed."""
    rng = random.Random(seed)
    words = {name: text.split(" ") for name, text in SENTENCES.items()}
    names = list(words)
    found = []
    for _ in range(count):
        some = words[rng.choice(names)]
        if rng.random() < 0.2:
            some = some + words[rng.choice(names)]
        line = [_changed(rng.choice(some), rng) for _ in range(rng.randint(0, 24))]
        found.append(rng.choice((" ", " ", " ", "  ", "\n", ", ", "")).join(line))
    return found


def _changed(word: str, rng: random.Random) -> str:
    match rng.randrange(12):
        case 0:
            return word.upper()
        case 1:
            return word[::-1]
        case 2:
            return word + word
        case 3:
            return str(rng.randrange(10**9))
        case 4:
            return unicodedata.normalize("NFD", word)
        case 5:
            return word + rng.choice(trained_tokenizers.SPECIAL)
    return word


LINES = make_lines(400)
TOKENIZERS = {name: train(LINES, 900) for name, train in trained_tokenizers.FAST.items()}


def fast(tokenizer: Tokenizer) -> FastTokenizer:
    given = read_tokenizer(tokenizer)
    assert isinstance(given, JsonTokenizer)
    found = find_fast(given)
    assert isinstance(found, FastTokenizer), found
    return found


def ids_of(tokenizer: FastTokenizer, texts: list[str], special: bool = False) -> list[list[int]]:
    ids, lengths = tokenizer.flat_ids(texts, special)
    ends = np.cumsum(lengths).tolist()
    return [ids[end - n : end].tolist() for end, n in zip(ends, lengths.tolist(), strict=True)]


def right(tokenizer: Tokenizer, texts: list[str], special: bool = False) -> list[list[int]]:
    found = tokenizer.encode_batch_fast(texts, add_special_tokens=special)
    return [encoding.ids for encoding in found]


FAST = {name: fast(tokenizer) for name, tokenizer in TOKENIZERS.items()}

anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
words = st.sampled_from([*trained_tokenizers.SPECIAL, "New York", "<x>", "ing", " ", "\r\n", "'ll"])
mixed = st.lists(anything | words | st.sampled_from(LINES), max_size=6).map("".join)


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=60)
@given(texts=st.lists(mixed, max_size=8), special=st.booleans())
def test_ids_of_any_text_are_those_of_tokenizers(
    name: str, texts: list[str], special: bool
) -> None:
    assert ids_of(FAST[name], texts, special) == right(TOKENIZERS[name], texts, special)
    assert FAST[name]._state.encoder is not None


@pytest.mark.parametrize("name", TOKENIZERS)
def test_special_tokens_are_split_where_the_tokenizer_says_so(name: str) -> None:
    tokenizer = Tokenizer.from_str(TOKENIZERS[name].to_str())
    tokenizer.encode_special_tokens = True
    found = fast(tokenizer)
    texts = [*hard_texts(found.exact.added_tokens()), *LINES]
    assert ids_of(found, texts) == right(tokenizer, texts)


@pytest.mark.rest
@pytest.mark.parametrize("name", TOKENIZERS)
def test_ids_of_100_000_lines_of_many_languages_are_those_of_tokenizers(name: str) -> None:
    lines = make_lines(100_000, seed=1)
    for start in range(0, len(lines), 5_000):
        some = lines[start : start + 5_000]
        assert ids_of(FAST[name], some) == right(TOKENIZERS[name], some)


def test_the_library_starts_no_threads_of_its_own() -> None:
    before = _threads()
    FAST["GPT-2"].flat_ids(LINES * 5, False)
    assert not [name for name in _threads() if name.startswith("fastokens")]
    assert len(_threads()) == len(before)
    assert "FASTOKENS_BPE_THREADS" not in os.environ


def _threads() -> list[str]:
    tasks = Path("/proc/self/task")
    return [(task / "comm").read_text() for task in tasks.iterdir()]


def test_threads_share_a_tokenizer() -> None:
    tokenizer = fast(TOKENIZERS["NFC"])
    expected, wrong = right(TOKENIZERS["NFC"], LINES), []

    def work() -> None:
        wrong.extend(1 for _ in range(20) if ids_of(tokenizer, LINES) != expected)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_it_goes_to_workers_as_the_json_alone() -> None:
    sent = cloudpickle.dumps(FAST["GPT-2"])
    assert len(sent) < len(TOKENIZERS["GPT-2"].to_str().encode()) + 2_000
    again = cloudpickle.loads(sent)
    assert again == FAST["GPT-2"]
    assert ids_of(again, LINES) == right(TOKENIZERS["GPT-2"], LINES)


# In pipelines.

ROWS = sv.from_columns({"line": LINES})


def tokenized(tokenizer: Tokenizer, **how: Any) -> sv.Pipeline:
    return ROWS.derive(ids=sv.text("line").tokenize(tokenizer, **how)).select("ids")


def used(pipeline: sv.Pipeline) -> bool:
    terms = [node.step for node in _nodes(optimize(pipeline.plan)[0])]
    params = [dict(part.params) for term in terms for part in walk(term) if isinstance(part, Call)]
    return any(isinstance(p.get("tokenizer"), FastTokenizer) for p in params)


def _nodes(plan: Any) -> list[Any]:
    from silva.plan.expr import Col, Literal
    from silva.plan.node import Derive
    from silva.plan.node import walk as walk_plan

    terms = (Call, Col, Literal)
    return [n for n in walk_plan(plan) if isinstance(n, Derive) and isinstance(n.step, terms)]


def rows_of(pipeline: sv.Pipeline, **how: Any) -> list[list[int]]:
    return [list(row["ids"]) for row in pipeline.loader(**how)]


def test_a_pipeline_uses_it_and_says_so() -> None:
    pipeline = tokenized(TOKENIZERS["GPT-2"], special_tokens=True)
    assert used(pipeline)
    assert rows_of(pipeline) == right(TOKENIZERS["GPT-2"], LINES, special=True)
    said = " ".join(pipeline.explain().split())
    assert "fast_tokenizer: another library gives the same ids in less time" in said
    assert "fastokens" in said
    assert "in place of tokenizers" in said


def test_it_can_be_switched_off() -> None:
    pipeline = tokenized(TOKENIZERS["GPT-2"]).options(disable=["fast_tokenizer"])
    assert not used(pipeline)
    assert "switched off" in pipeline.explain()


def test_fingerprints_do_not_depend_on_it() -> None:
    pipeline = tokenized(TOKENIZERS["GPT-2"])
    before = fingerprint(pipeline.plan)
    assert used(pipeline)
    assert fingerprint(pipeline.plan) == before


@pytest.mark.parametrize("name", trained_tokenizers.SLOW)
def test_a_tokenizer_that_it_does_not_support_runs_as_before(name: str) -> None:
    trained = trained_tokenizers.SLOW[name](LINES, 900)
    tokenizer = Tokenizer.from_str(trained.to_str())  # whose scores are as the JSON rounds them
    pipeline = tokenized(tokenizer)
    assert rows_of(pipeline) == right(tokenizer, LINES)
    assert "fastokens does not support this tokenizer" in " ".join(pipeline.explain().split())


def test_without_the_library_tokenizers_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastokens", None)
    monkeypatch.setitem(sys.modules, "fastokens._native", None)
    pipeline = tokenized(TOKENIZERS["GPT-2"])
    assert not used(pipeline)
    assert rows_of(pipeline) == right(TOKENIZERS["GPT-2"], LINES)
    assert "fastokens is not installed" in " ".join(pipeline.explain().split())


class Wrong:
    """An encoder that gives other ids for some texts."""

    def __init__(self, encoder: Any, is_wrong: Callable[[str], bool]) -> None:
        self._encoder, self._is_wrong = encoder, is_wrong

    def encode_batch_flat(self, inputs: list[str], *how: bool) -> tuple[bytes, bytes]:
        changed = [text + "!" if self._is_wrong(text) else text for text in inputs]
        found: tuple[bytes, bytes] = self._encoder.encode_batch_flat(changed, *how)
        return found


def be_wrong(monkeypatch: pytest.MonkeyPatch, is_wrong: Callable[[str], bool]) -> None:
    build = fast_tokenizer.build
    monkeypatch.setattr(fast_tokenizer, "build", lambda json: Wrong(build(json), is_wrong))


def test_it_is_not_used_if_a_hard_text_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    be_wrong(monkeypatch, lambda text: "\u200b" in text)
    pipeline = tokenized(TOKENIZERS["GPT-2"])
    assert not used(pipeline)
    assert rows_of(pipeline) == right(TOKENIZERS["GPT-2"], LINES)
    assert "gives other ids for" in " ".join(pipeline.explain().split())


@pytest.mark.parametrize("function", [False, True], ids=["expression", "function"])
def test_it_is_given_up_for_good_if_a_row_differs(
    monkeypatch: pytest.MonkeyPatch, function: bool
) -> None:
    be_wrong(monkeypatch, lambda text: text == LINES[5])
    tokenizer = Tokenizer.from_str(TOKENIZERS["Qwen"].to_str())
    tokenizer.add_tokens([f"<only here {function}>"])
    pipeline = ROWS.derive(ids=tokenizer, reads="line") if function else tokenized(tokenizer)
    with pytest.warns(RuntimeWarning, match="gives other ids for"):
        assert rows_of(pipeline.select("ids"), workers=0) == right(tokenizer, LINES)
    assert rows_of(pipeline.select("ids"), workers=0) == right(tokenizer, LINES)
    said = " ".join(pipeline.explain().split())
    assert "(not used: fastokens" in said
    assert "gives other ids for" in said


def test_it_is_given_up_if_it_fails_on_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(text: str) -> bool:
        if text == LINES[200]:
            raise ValueError("no token")
        return False

    be_wrong(monkeypatch, fail)
    tokenizer = Tokenizer.from_str(TOKENIZERS["Qwen"].to_str())
    tokenizer.add_tokens(["<only here>"])
    with pytest.warns(RuntimeWarning, match="fails: no token"):
        assert rows_of(tokenized(tokenizer), workers=0) == right(tokenizer, LINES)


def test_a_text_that_is_no_unicode_fails_its_row_alone(recwarn: pytest.WarningsRecorder) -> None:
    found = fast(Tokenizer.from_str(TOKENIZERS["GPT-2"].to_str()))
    with pytest.raises(TypeError):
        found.flat_ids(["a", "\ud800"], False)
    assert found._state.encoder is not None
    assert not recwarn.list


def test_it_is_not_used_if_it_fails_where_tokenizers_does_not() -> None:
    """Bytes without a token: tokenizers leaves them out, fastokens raises."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=60, show_progress=False)
    tokenizer.train_from_iterator(["green forest"], trainer)
    pipeline = tokenized(tokenizer)
    assert rows_of(pipeline) == right(tokenizer, LINES)
    said = " ".join(pipeline.explain().split())
    assert "(not used: fastokens" in said
    assert "has no token in vocabulary" in said


def test_only_the_first_rows_are_tokenized_twice() -> None:
    tokenizer = fast(TOKENIZERS["Llama 3"])
    tokenizer.__dict__["_state"].to_compare = COMPARED_ROWS
    for start in range(0, 3 * COMPARED_ROWS, 24):
        tokenizer.flat_ids(LINES[start : start + 24], False)
    assert tokenizer._state.to_compare == 0


def test_a_process_with_another_version_uses_tokenizers() -> None:
    other = FastTokenizer(FAST["GPT-2"].exact, "fastokens 0.0.1")
    assert ids_of(other, LINES) == right(TOKENIZERS["GPT-2"], LINES)
    assert other._state.encoder is None


def test_a_tokenizer_as_a_function_gives_the_same_lists_of_ids() -> None:
    tokenizer = TOKENIZERS["GPT-2"]
    pipeline = ROWS.derive(ids=tokenizer, reads="line").select("ids")
    assert "fastokens" in pipeline.explain()
    (fast_row,) = pipeline.head(1)
    (slow_row,) = pipeline.options(disable=["fast_tokenizer"]).head(1)
    assert type(fast_row["ids"]) is type(slow_row["ids"]) is list
    assert rows_of(pipeline) == right(tokenizer, LINES)


def test_a_function_that_pads_or_truncates_is_left_alone() -> None:
    tokenizer = Tokenizer.from_str(TOKENIZERS["GPT-2"].to_str())
    tokenizer.enable_truncation(3)
    pipeline = ROWS.derive(ids=tokenizer, reads="line").select("ids")
    assert rows_of(pipeline) == right(tokenizer, LINES)
    assert "pads or truncates itself" in " ".join(pipeline.explain().split())


def test_errors_are_those_of_the_pipeline_as_written() -> None:
    pipeline = sv.from_items([{"line": 7}]).derive(ids=TOKENIZERS["GPT-2"], reads="line")
    messages = []
    for way in (pipeline, pipeline.options(disable=["fast_tokenizer"])):
        with pytest.raises(sv.RowError) as caught:
            list(way)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.rest
@pytest.mark.parametrize("function", [False, True], ids=["expression", "function"])
def test_streams_do_not_depend_on_where_it_runs(function: bool) -> None:
    rows = sv.from_columns({"line": [None if i % 9 == 4 else x for i, x in enumerate(LINES[:40])]})
    tokenizer = TOKENIZERS["added tokens"]
    if function:
        pipeline = ROWS.take(40).shuffle(seed=1).derive(ids=tokenizer, reads="line").batch(7)
    else:
        ids = sv.text("line").tokenize(tokenizer, special_tokens=True)
        pipeline = rows.shuffle(seed=1).derive(ids=ids, few=ids.truncate(5).pad(6)).batch(7)
    assert_same_stream(pipeline, workers=(2,), epochs=1)


def test_it_runs_in_processes() -> None:
    pipeline = tokenized(TOKENIZERS["GPT-2"])
    expected = right(TOKENIZERS["GPT-2"], LINES)
    assert rows_of(pipeline, workers=2, backend="processes") == expected


def test_an_array_of_ids_can_be_written_to() -> None:
    ids, _ = FAST["GPT-2"].flat_ids(LINES, False)
    assert ids.dtype == np.int32
    assert ids.flags.writeable


def test_a_pattern_that_both_libraries_read_differently_is_left_to_tokenizers() -> None:
    """A line begins after each line break to Oniguruma, the text begins once to PCRE2."""
    split = trained_tokenizers.split(r"^[a-z]|\p{L}+")
    tokenizer = trained_tokenizers.byte_level(LINES, 900, split)
    pipeline = tokenized(tokenizer)
    assert not used(pipeline)
    assert "reads the pattern '^[a-z]|\\\\p{L}+' in another way" in " ".join(
        pipeline.explain().split()
    )


def test_a_tokenizer_to_which_other_characters_are_white_space_is_left_to_tokenizers() -> None:
    tokenizer = trained_tokenizers.MORE["word ends"](LINES, 900)
    given = read_tokenizer(tokenizer)
    assert isinstance(given, JsonTokenizer)
    found = find_fast(given)
    assert isinstance(found, str)
    assert r"gives other ids for '\u180e" in found


def test_text_with_a_character_that_is_white_space_to_one_library_is_left_to_tokenizers() -> None:
    """No hard text shows the difference, since two tabs are the only ones that merge."""
    bytes_alone = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*bytes_alone, "ĉĉ"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("ĉ", "ĉ")]))
    tokenizer.pre_tokenizer = trained_tokenizers.split(r" ?[^\s]+|\s+(?!\S)|\s+")
    found = fast(tokenizer)
    found._state.to_compare = 0
    texts = ["\t\t\u180e", "\t\t", "a\t\t\u180e b"]
    for some in (texts, texts[:1], texts[1:2]):
        assert ids_of(found, some) == right(tokenizer, some)


_LETTERS = {"<unk>": 0, "a": 1, "b": 2, "<": 3, ">": 4, "ab": 5}


@pytest.mark.parametrize(
    ("model", "text", "why"),
    [
        (models.BPE(_LETTERS, [("a", "b")], unk_token="<unk>", fuse_unk=True), "<unk>", "<unk>"),
        (models.BPE(_LETTERS, [("a", "b")]), "axb", "the characters that this tokenizer drops"),
    ],
    ids=["the unknown token as text", "unknown characters are dropped"],
)
def test_unknown_characters_have_the_ids_of_tokenizers(model: Any, text: str, why: str) -> None:
    tokenizer = Tokenizer(model)
    found = find_fast(read_tokenizer(tokenizer))  # type: ignore[arg-type]
    assert isinstance(found, str)
    assert why in found
    ids = sv.text("line").tokenize(tokenizer)
    rows = sv.from_columns({"line": [*LINES[:70], text]}).derive(ids=ids).select("ids")
    assert rows_of(rows, workers=0) == right(tokenizer, [*LINES[:70], text])


def test_a_tokenizer_that_panics_fails_rows_and_not_the_plan() -> None:
    tokenizer = Tokenizer.from_str(TOKENIZERS["GPT-2"].to_str())
    tokenizer.normalizer = normalizers.Replace("", "a")
    pipeline = tokenized(tokenizer)
    assert "tokenizers fails on a hard text" in " ".join(pipeline.explain().split())
    with pytest.raises(sv.RowError, match="out of bounds"):
        rows_of(pipeline, workers=0)


def count_odd_ones_with_the_same_ids(seeds: range) -> int:
    used_ones = 0
    for seed in seeds:
        chance = random.Random(seed)
        tokenizer = draw_tokenizer(chance)
        found = find_fast(read_tokenizer(tokenizer))  # type: ignore[arg-type]
        if isinstance(found, str):
            continue
        used_ones += 1
        found._state.to_compare = 0
        texts = draw_texts(chance, 100)
        for special in (False, True):
            for start in range(0, len(texts), 4):
                some = texts[start : start + 4]
                assert ids_of(found, some, special) == right(tokenizer, some, special), seed
    return used_ones


def test_odd_tokenizers_give_the_same_ids_or_are_not_used() -> None:
    assert count_odd_ones_with_the_same_ids(range(6)) > 0


@pytest.mark.rest
def test_many_odd_tokenizers_give_the_same_ids_or_are_not_used() -> None:
    assert count_odd_ones_with_the_same_ids(range(6, 300)) > 60


@pytest.mark.parametrize("name", token_ids.KINDS)
def test_pipelines_give_the_ids_of_tokenizers_for_fuzzed_strings(name: str) -> None:
    trained = token_ids.KINDS[name](LINES, 900)
    tokenizer = Tokenizer.from_str(trained.to_str())
    texts = fuzzed(150, seed=1, tokens=trained_tokenizers.SPECIAL, lines=LINES)
    for special in (False, True):
        found = token_ids.compare(tokenizer, texts, special)
        assert (found.texts, found.different) == (150, 0), found


def test_lines_come_from_every_file_also_from_compressed_ones(tmp_path: Path) -> None:
    (tmp_path / "a.po").write_text("one\ntwo\n\n")
    (tmp_path / "b.gz").write_bytes(gzip.compress("森は緑\nтри\n".encode()))
    assert sorted(token_ids.read_lines(tmp_path, 9, seed=0)) == ["one", "two", "три", "森は緑"]
