"""One pipeline for many trainers.

A service runs a pipeline and sends its batches over HTTP. `server` starts runs (`shared_runs`), and
each run (`shared_run`) is a thread that keeps encoded batches until its readers have them. `http`
receives requests (`wire`), `limits` and `access` check them. On the other side, `client` is a
loader whose batches come through a `connection`, and on the same machine through shared memory
(`same_host`).
"""
