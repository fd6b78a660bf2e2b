"""A served pipeline over HTTP: who may ask, how a request becomes a row, and what is replied.

`app.py` is the ASGI app and `server.py` the process around it. `admission.py` leads a request from
its body (`exchange.py`) to its reply (`replies.py`, `events.py`), within what its token allows
(`access.py`), once for each `Idempotency-Key` (`idempotency.py`).
"""
