"""why(name): all that concerns one column, step, operator or stage."""

from __future__ import annotations

import pytest
from busy import spin

import silva as sv


def double(x):
    return x * 2


def noisy(x, rng):
    return x + rng.random()


def pipeline():
    rows = sv.from_columns({"x": range(200), "spare": range(200)}).derive(a=double, gone=double)
    rows = rows.derive(n=noisy, c=sv.num("x").clip(0, 9)).filter(sv.col("x") % 2 == 0)
    return rows.select("a", "n", "c").batch(8)


def test_a_step_that_is_run() -> None:
    line = double.__code__.co_firstlineno
    text = pipeline().why("a").splitlines()
    assert text[0] == f"`a` is written by derive a = double(x)  [test_why.py:{line}]."
    assert text[1] == "It runs in stage 1."


def test_a_step_that_was_dropped() -> None:
    text = pipeline().why("gone")
    assert "No stage runs it as a step of its own." in text
    assert "Rule drop_unread: nothing reads the columns that these steps write." in text
    assert "  · gone" in text.splitlines()


def test_columns_of_a_source() -> None:
    assert "It is read in stage 1." in pipeline().why("x")
    assert "It is not read, because no step needs it." in pipeline().why("spare")


def test_a_rule_or_a_choice_of_the_planner() -> None:
    text = pipeline().why("drop_unread")
    assert text.splitlines() == [
        "Rule drop_unread: nothing reads the columns that these steps write.",
        "  · gone",
    ]


def test_a_note_is_about_what_it_names_and_not_about_a_word_of_its_reason() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    bpe.train_from_iterator(["red fox"], trainer)
    rows = sv.from_columns({"text": ["red fox"], "ids": [1]})
    tokenized = rows.derive(tokens=sv.text("text").tokenize(bpe))
    for name in ("tokens", "tokenize", "fast_tokenizer"):
        assert "Rule fast_tokenizer: " in tokenized.why(name)
    assert "fast_tokenizer" not in tokenized.why("ids")  # the reason says: the same ids


def test_random_steps_operators_and_filters() -> None:
    assert "The step is random" in pipeline().why("n")
    assert "`clip` is used by derive c = x.clip(" in pipeline().why("clip")
    text = pipeline().why("filter#0")
    assert "It runs before a#0, n#0, c#0, although it was written after." in text
    assert "Rule filter_early: " in text


def test_what_was_measured_and_where_it_runs() -> None:
    rows = sv.from_columns({"x": range(400)}).derive(a=spin(0.2), b=spin(0.01))
    loader = rows.filter(lambda a: a % 4 == 0).batch(8).loader(backend="inline")
    list(loader)
    text = loader.why("a")
    assert "It runs in stage 1 inline: as asked for." in text
    assert " of stage 1." in text.splitlines()[-1]
    assert "It keeps 25 % of the rows." in loader.why("filter#0")
    assert "predicted" in " ".join(loader.why("stage 1").split())


def test_an_unknown_name_is_answered_with_close_ones() -> None:
    with pytest.raises(sv.PlanError, match="nothing here is called 'spair'; did you mean 'spar"):
        pipeline().why("spair")
    with pytest.raises(sv.PlanError, match="the names are 'a', 'a#0'"):
        pipeline().why("qqqqqqqqq")


def test_laws_that_were_used_and_laws_that_must_not_be() -> None:
    gray = sv.image("bytes").decode().grayscale().center_crop(8)
    hue = sv.image("bytes").decode().color_jitter(hue=0.2).grayscale()
    rows = sv.from_columns({"bytes": [b""]}).derive(gray=gray, hue=hue).batch(1)
    used = [line for line in rows.why("gray").splitlines() if line.startswith("Rule ")]
    refused = [line for line in rows.why("hue").splitlines() if line.startswith("Rule ")]
    assert any("crop_before_pixels" in line for line in used)
    assert any("not used" in line for line in refused)
    assert not set(used) & set(refused)
