"""Requests over HTTP: what silva costs beside bare servers, and how long the slowest wait.

    python -m benchmarks.serving [claims…] [--quick]

Each server runs in a process of its own, and the client in another one, which writes raw HTTP over
sockets so that it costs little (`client.py`). All answer the same question on the same uvicorn,
uvloop and httptools: `servers.py`, and `ray_serve.py` in an environment of its own. Rounds are
interleaved and figures are medians. A server that is not installed ends the run.
"""
