"""Loops of agents: the steps of a turn are repeated on a row until a condition holds.

`loop.py` is the verb, `turns.py` runs the turns of many rows, `one_turn.py` is one turn as a step
of the engine, so that requests at any turn share its batches.
"""
