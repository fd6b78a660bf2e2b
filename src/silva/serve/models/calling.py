"""Calls an open model, and checks the shape of what it returns: its class may be the user's own.

Every question ends in an answer, which is a copy of what the model returned, or in an error that
names the model. Where one call for several
questions raises, each is asked alone, so that one on which a model fails costs no other one its
answer, and a fault that has passed costs nobody's. What comes in another shape than it was asked
for is the model's error for all of them, since nobody knows which answer is whose.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from silva.errors import SilvaError
from silva.physical.stage.raised import in_words
from silva.serve.deadline import limit
from silva.serve.models.asking import Arriving
from silva.serve.models.codecs import CODECS
from silva.serve.models.errors import Abandoned, ModelError
from silva.serve.models.model import Model, OpenModel
from silva.serve.tenant import listener

_PASSED_ON = (KeyboardInterrupt, Abandoned)
"""What ends a call without being the error of its questions."""


def answers_of(opened: OpenModel, kind: str, model: Model, items: Sequence[Any]) -> Arriving[Any]:
    """The answers to some questions as they arrive, by their places: each once, and all of them."""
    left = set(range(len(items)))
    arriving = _arriving(opened, kind, model, items)
    try:
        while left:
            try:
                some = next(arriving, None)
                if some is None:
                    raise ModelError(f"{model!r} left {len(left)} questions without an answer")
                if not isinstance(some, Mapping) or not some or not some.keys() <= left:
                    raise ModelError(f"{model!r} gave answers to what it was not asked, or twice")
            except _PASSED_ON:
                raise
            except BaseException as error:  # noqa: BLE001  it may raise anything
                some = dict.fromkeys(left, _error_of(model, error))
            left -= some.keys()
            made = of_one_width(some) if kind == "embed" else some
            yield {place: _checked(kind, model, one) for place, one in made.items()}
    finally:
        getattr(arriving, "close", lambda: None)()


def _arriving(
    opened: OpenModel, kind: str, model: Model, items: Sequence[Any]
) -> Iterator[Mapping[int, Any]]:
    """The answers in the way in which the model gives them."""
    on_text, stream = listener(), getattr(opened, "stream", None)
    if on_text is not None and stream is not None and (kind, len(items)) == ("generate", 1):
        return iter([{0: _tried(model, lambda: stream(items[0], on_text))}])
    arriving = getattr(opened, "arriving", None)
    if arriving is None:
        return _by_calls(opened, kind, model, items)
    found = _tried(model, lambda: arriving(kind, list(items)))
    if isinstance(found, Exception):
        return iter([dict.fromkeys(range(len(items)), found)])
    if not isinstance(found, Iterable):
        raise _no_list(model, "arriving", found)
    return iter(found)


def _by_calls(
    opened: OpenModel, kind: str, model: Model, items: Sequence[Any]
) -> Iterator[Mapping[int, Any]]:
    """The answers of one call; where it raises, those of a call for each question."""
    try:
        found = _asked(opened, kind, model, items)
    except _PASSED_ON:
        raise
    except BaseException:
        if len(items) == 1:
            raise
    else:
        if isinstance(found, ModelError):
            yield dict.fromkeys(range(len(items)), found)
        else:
            yield dict(enumerate(found))
        return
    for place, item in enumerate(items):
        if (awaited := limit()) is not None and awaited.is_given_up:
            raise Abandoned(f"nobody awaits what {model!r} is asked")
        alone = _tried(model, functools.partial(_asked, opened, kind, model, [item]))
        yield {place: alone if isinstance(alone, Exception) else alone[0]}


def _asked(
    opened: OpenModel, kind: str, model: Model, items: Sequence[Any]
) -> Sequence[Any] | ModelError:
    """What a model returns to some questions, one answer for each, or the error that it is not so.
    It gets a list of its own, which it may change."""
    ask = getattr(opened, kind, None)
    if ask is None:
        return ModelError(f"{model!r} has no {kind}(…)")
    found = ask(list(items))
    is_list = isinstance(found, Sequence) and not isinstance(found, str | bytes)
    if not is_list and not (isinstance(found, np.ndarray) and found.ndim):
        return _no_list(model, kind, found)
    if len(found) != len(items):
        return ModelError(f"{model!r} returned {len(found)} answers to {len(items)} questions")
    made: Sequence[Any] = found
    return made


def _no_list(model: Model, method: str, found: Any) -> ModelError:
    kind = type(found).__name__
    return ModelError(f"{model!r} returned {kind} from {method}(…), and not a list of answers")


def of_one_width(found: Mapping[int, Any]) -> dict[int, Any]:
    """The vectors by their places, with an error for those of another width than most; for all of
    them, where no width is that of most."""
    widths = Counter(width for one in found.values() if (width := _width(one)) is not None)
    if len(widths) < 2:
        return dict(found)
    (first, most), (_, second) = widths.most_common(2)
    wrong = [
        place
        for place, one in found.items()
        if (width := _width(one)) is not None and (width != first or most == second)
    ]
    return {**found, **{place: _of_other_width(found[place], widths) for place in wrong}}


def _of_other_width(one: Any, widths: Counter[int]) -> ModelError:
    others = ", ".join(str(width) for width, _ in widths.most_common() if width != len(one))
    return ModelError(f"the vector has {len(one)} numbers, and those of other rows have {others}")


def _width(vector: Any) -> int | None:
    """The numbers of a vector; None for what is none."""
    return len(vector) if isinstance(vector, Sequence | np.ndarray) and len(vector) else None


def _checked(kind: str, model: Model, value: Any) -> Any:
    """An answer as it is kept, which nobody can change any more, or the error of its question."""
    if isinstance(value, BaseException):
        return _error_of(model, value)
    codec = CODECS[kind]
    try:
        return codec.decode(codec.encode(value))
    except Exception as error:  # noqa: BLE001  it may return anything
        return ModelError(f"an answer of {model!r} cannot be used: {error}")


def _tried(model: Model, call: Callable[[], Any]) -> Any:
    """What a call returns, or the error of all its questions."""
    try:
        return call()
    except _PASSED_ON:
        raise
    except BaseException as error:  # noqa: BLE001  it may raise anything
        return _error_of(model, error)


def _error_of(model: Model, error: BaseException) -> Exception:
    """What a model has raised, as an error of silva's that names it."""
    if isinstance(error, SilvaError):
        return error
    made = ModelError(f"{model!r} failed: {in_words(error)}")
    made.__cause__ = error
    return made.with_traceback(error.__traceback__)
