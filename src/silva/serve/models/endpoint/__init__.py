"""Models behind endpoints that speak OpenAI's protocol.

`endpoint.py` is the value that says which endpoint, and its limits. An open endpoint (`calls.py`)
turns questions into calls on one event loop; `exchange.py` makes a call, with its place, its
attempts (`retries.py`) and its money. `openai.py` holds the bodies of requests and replies.
"""
