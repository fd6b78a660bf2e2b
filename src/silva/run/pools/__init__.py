"""Pools run tasks: inline, on threads, or in worker processes.

A task is one input of a stage on its way to a result (`task`). `threads` holds the two pools that
need no second process; `processes` starts workers, each of which runs the file `worker`, and talks
to them over a `channel`, with large buffers in shared memory. `pickling` turns stages into bytes.
"""
