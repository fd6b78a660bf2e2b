"""`python -m benchmarks.ray_cluster [what …]`: what silva on Ray does, and what that costs.

`images`: photos on a Ray of two CPUs on this machine, beside two threads and beside Ray Data on the
same Ray. `first`: seconds to the first batch, beside Ray Data's. `blocks`: what a block costs that
holds next to nothing. `nodes`: a step that sleeps, over 1, 2, 4 and 8 nodes of one CPU, all on this
machine. `workers`: what giving out a block costs the driver, by how many workers there are.
`demand`: a trainer that asks for more and for less, and how many workers follow.
Without arguments, all of them. On a machine that is busy with other things, starting is slow, and
CPU seconds tell more than the clock.
"""
