"""Which of a pipeline's choices are best.

`tune.py` searches: configurations share what they compute alike (`sharing.py`), are measured in a
`contest.py` by metrics and `constraints.py`, and race (`racing.py`) by evidence on the rows that
two of them have answered (`paired.py`). What is left is a front (`tuned.py`, `plot.py`).
"""
