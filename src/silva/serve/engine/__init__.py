"""Answers requests as they come: each costly step runs on batches that are formed across requests.

`units.py` cuts a plan into units; `engine.py` leads each request (`flights.py`) through them. At
each unit a request waits at a station (`station.py`), which asks equal questions once (`same.py`)
and forms batches by what the step was measured to take (`curve.py`, `schedule.py`), on as many
threads as its waiting is worth (`width.py`, `threads.py`); `prefixes.py` orders those that wait for
a local model. `refresh.py` puts one engine in the place of another; `garbage.py` keeps collections
short; `program.py` answers within a program.
"""
