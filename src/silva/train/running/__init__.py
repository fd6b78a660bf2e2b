"""A plan as it runs on one rank, on torch's own primitives.

`layout` says who is who among the ranks, `model` makes this rank's part of the module (stages, then
parts of weights, then FSDP or DDP), `trainer` takes steps, `gradients` adds up, scales and clips,
and `verify` compares a step with a single process before the first real one.
"""
