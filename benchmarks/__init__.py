"""Benchmarks: silva beside its peers, and beside what the machine can do.

    make bench                                   everything; about an hour on two cores
    make bench QUICK=1                           small sizes, fewer peers, one round: does it run?
    make bench-peers                             make the environments of the peers, 11 GB
    python -m benchmarks gil arrays              some workloads
    python -m benchmarks simclr --no-peers       only what runs in silva's own environment
    python -m benchmarks --rounds 9 --json my.json
    python -m benchmarks.plot my.json my.png     the picture again
    python -m benchmarks.page my.json my.html    the page again

**What is compared.** One file is one workload, one function in it one contestant, written as that
peer's documentation recommends for speed; how a peer gets from items to batches stands once, in
`peers/`. Contestants do the same work: every run counts its rows and adds up a checksum, and type
and shape of its batches are looked at; a run that differs is an error. Where steps are random, sums
agree only within a stated tolerance. The *limit* of a workload is what a person would write by
hand for this one job, with no framework. Targets stand in each workload as data; the second table
says which were reached.

**Where peers run.** In environments of their own (`environments.py`), which are made when they are
missing. A peer that cannot be installed is shown as such, with the reason.

**On what.** Real photos, speech and text from the folder `SILVA_BENCH_DATA` or from `shared/data`
beside the repository; where there are none, they are made (`data.py`). The output says which.

**How it is measured.** Every run is a new process, so no import, cache or warm allocator leaks
from one contestant to the next. Contestants take turns for several rounds, each round starting
with another one, so a slow minute of the machine hits all alike; a ratio is the median of the
ratios within the rounds, and a rate the median of the rounds, with the lowest and highest beside
it. A contestant prepares (imports, data, Ray's cluster) before the clock starts; making the loader,
starting its workers and reading one whole epoch are inside. Libraries are held to one thread in
each worker. Workloads marked *warm* read one epoch before that, and check it instead of the
measured ones, where adding up would take longer than the work itself.

- *rows/s*: rows that come out, divided by the time of the whole epoch.
- *steady/s*: the same without the first batch and the time to it. It flatters those who hand out
  much at once (polars, Daft, Ray Data), and is fair to those whose workers start slowly.
- *first*: seconds until the first batch.
- *CPU*: of all processes together, per row that comes out.
- *peak*: resident memory summed over all processes, looked at every 20 ms from outside. Pages that
  processes share count in each of them, which makes forked workers look larger than they are; the
  memory workload divides them (PSS), and adds shared segments that nobody has mapped.

The result is written as JSON, PNG and one HTML page into `benchmarks/results/`, with the
machine, the versions and the load that others put on the machine meanwhile.
"""
