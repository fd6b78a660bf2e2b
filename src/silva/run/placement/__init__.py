"""Which backend a stage runs on, and with how many workers.

A `lane` is one stage as it runs now: what its rows cost, and its backend. `trial` compares backends
by measurement, `offload` does so for the cluster, `width` controls the number of workers,
`block_sizes` the size of blocks, and `forecast` keeps predictions beside what was then measured.
"""
