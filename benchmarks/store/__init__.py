"""What the store promises, measured: `python -m benchmarks.store`.

Each claim is a function in a file of its own kind (`sizes`, `labels`, `throughput`, `writers`, …);
`claims` lists them. What is timed runs in new processes that take turns.
"""
