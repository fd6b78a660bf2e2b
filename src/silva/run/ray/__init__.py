"""The pool on a Ray cluster: actors run the tasks.

`cluster` joins Ray and leaves it, `pool` sends tasks to actors and receives their results, `roster`
records which actor runs on which node and which one replaces it, `actor` is the code that runs in
one. `buffers` brings results back: through Ray's object store, or through shared memory of an
actor on the trainer's own node.
"""
