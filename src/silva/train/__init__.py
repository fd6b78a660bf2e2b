"""Trains an unmodified torch module on a topology.

`graph/` looks at the module: its graph, the weights that can be sharded, the places where it can be
cut. `planning/` measures its parts, simulates the ways to spread it, and chooses one: a `Plan`.
`running/` runs a plan on torch's own primitives, and compares it with a single process first.
`checkpoint/` keeps what a job has learnt, so that any other plan can go on with it. A `Choice` is
one way: dp · fsdp · tp · pp, microbatches and their order.
"""

from silva.train.choice import Choice
from silva.train.plan import Plan, load, plan
from silva.train.running.layout import start_ranks

__all__ = ["Choice", "Plan", "load", "plan", "start_ranks"]
