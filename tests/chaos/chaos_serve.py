"""The service of the chaos tests: run as a script, until Ctrl-C."""

from __future__ import annotations

from typing import Any

from chaos_script import run_through, say, start
from chaos_stream import pipeline

import silva as sv


def serve(told: dict[str, Any]) -> None:
    """Little memory and patience: who is far behind gets a run of its own."""
    with sv.Service(
        {"it": pipeline(None)},
        port=told["port"],
        token=told["token"],
        memory="4MiB",
        patience=0.2,
        idle=5.0,
        **told["loader"],
    ) as service:
        say("done", service.address)
        service.wait()


if __name__ == "__main__":
    told = start()
    run_through(lambda: serve(told))
