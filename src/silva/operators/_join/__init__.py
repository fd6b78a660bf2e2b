"""How joins find rows, a whole column at a time.

Values of key columns become small numbers (`keys`), times become whole numbers of one unit
(`times`); then a row is found by bisection in a sorted array (`tables`). What is built of the other
side, once, is plain data that travels to workers.
"""
