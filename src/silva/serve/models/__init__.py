"""Models as steps: `model.embed("text")`, `model.generate("… {question} …")`, `model.score(…)`.

A `Model` is a value that says which model it is (`identity`) and how it is opened. Its methods
build expressions over columns (`model.py`), whose operators (`operators.py`) render a prompt for
each row (`prompt.py`), look the answer up by its content (`answers.py`), and ask the open model for
those that nobody has asked for yet (`asking.py`). `endpoint/`, `encoders/` and `gguf/` run models;
`recorded.py` replays what they answered.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from silva.serve.models.encoders.cross_encoder import CrossEncoder
    from silva.serve.models.encoders.embedding import Embedding, StaticEmbedding
    from silva.serve.models.endpoint.endpoint import Endpoint
    from silva.serve.models.errors import ModelError
    from silva.serve.models.forgetting import forget
    from silva.serve.models.gguf.gguf import Gguf
    from silva.serve.models.model import Answer, Model, Question
    from silva.serve.models.recorded import Recorded

_HOME = {
    "Answer": "model",
    "CrossEncoder": "encoders.cross_encoder",
    "Embedding": "encoders.embedding",
    "Endpoint": "endpoint.endpoint",
    "forget": "forgetting",
    "Gguf": "gguf.gguf",
    "Model": "model",
    "ModelError": "errors",
    "Question": "model",
    "Recorded": "recorded",
    "StaticEmbedding": "encoders.embedding",
}
__all__ = [
    "Answer",
    "CrossEncoder",
    "Embedding",
    "Endpoint",
    "Gguf",
    "Model",
    "ModelError",
    "Question",
    "Recorded",
    "StaticEmbedding",
    "forget",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"silva.models has no {name!r}: there are {', '.join(__all__)}")
    return getattr(import_module(f"silva.serve.models.{_HOME[name]}"), name)
