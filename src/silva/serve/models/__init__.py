"""Models as steps: `model.embed("text")`, `model.generate("… {question} …")`, `model.score(…)`.

A `Model` is a value that says which model it is (`identity`) and how it is opened. Its methods
build expressions over columns (`model.py`), whose operators (`operators.py`) render a prompt for
each row (`prompt.py`), look the answer up by its content (`answers.py`), and ask the open model for
those that nobody has asked for yet (`asking.py`). `endpoint.py`, `embedding.py` and `gguf.py` run
models; `recorded.py` replays what they answered.
"""
