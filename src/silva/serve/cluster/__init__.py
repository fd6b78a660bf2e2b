"""A served pipeline on a Ray cluster: the front answers clients, costly steps run elsewhere.

The front is the same engine as without a cluster: it forms batches, keeps tenants apart, and draws
by requests. A step that computes for longer than it takes to send is a deployment of Ray Serve, as
wide as its share of the computing (`placement.py`). What waits, for a remote model or a turn of a
loop, needs no machine of its own and stays on the front's threads.
"""
