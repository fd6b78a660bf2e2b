"""What steps cost, and the throughput that follows from it.

Costs are measured in place, on real rows: seconds, CPU seconds, bytes, and how long a step holds
the GIL (`costs`, `gil`). Probes measure the hardware (`disk`, `memory_bandwidth`, `speeds`),
`machine` reports the CPUs and the memory that silva may use, and `book` keeps the costs of earlier
runs by fingerprint. `model` predicts throughput from them, and `experiment` compares what was
predicted with what was then measured. `simulate` replays tasks on shared resources, event by event,
and `trace` is the form of real and simulated runs.
"""
