"""Why a question has no answer: the model failed, or the question cannot be answered."""

from __future__ import annotations

from silva.errors import SilvaError


class ModelError(SilvaError):
    """A model did not answer, for a reason that is not the question's: it has ended, cannot be
    reached, or sent what cannot be used."""


class QuestionError(SilvaError):
    """A question that the model cannot take, such as one that is longer than its context."""


class Abandoned(ModelError):
    """A call that was given up because nobody waits for it any more. Whoever asks the same asks
    again."""
