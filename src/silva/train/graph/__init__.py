"""A torch module as a flat graph, and what can be done with it.

`trace` exports an unmodified module once: a list of operators on tensors, with parameters, buffers
and the batch as inputs. `values` says what a value is: its size, its cost, whether gradients flow
through it. `shards` follows a sharded dimension from operator to operator; `groups` finds the
groups of weights that can be sharded over several devices, and proves each on random numbers;
`cuts` finds where a graph can be cut into stages, and `pieces` makes modules of its parts. Nothing
here knows the name of a model or of a class.
"""
