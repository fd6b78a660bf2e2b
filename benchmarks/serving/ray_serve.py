"""The same question on Ray Serve: `python ray_serve.py`, in an environment that has it.

One deployment with one replica, as its documentation writes it. The port goes out as a line, and
the cluster ends with standard input.
"""

from __future__ import annotations

import socket
import sys

import ray
from ray import serve
from starlette.requests import Request


@serve.deployment(max_ongoing_requests=1000)
class Add:
    async def __call__(self, request: Request) -> dict[str, int]:
        row = await request.json()
        return {"x": row["x"], "y": row["x"] + 1}


def main() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(Add.bind(), route_prefix="/")
    print(f"port {port}", flush=True)
    sys.stdin.read()
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
