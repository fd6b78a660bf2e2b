"""The arguments of `serve` and `asgi`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

from silva.errors import PlanError
from silva.plan.arguments import duration, flag, natural
from silva.run.failures import Skip, Substitute


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """The arguments of `pipeline.asgi(…)`, and most of those of `pipeline.serve(…)`."""

    token: str | None = None
    """What clients show as `Authorization: Bearer …`; None for the one in `$SILVA_TOKEN`, or else a
    new random one."""
    slo: float | None = None
    """Seconds within which a request should be answered: batches are as large as that allows."""
    deadline: float = 60.0
    """Seconds after which a request is given up, and answered with 504."""
    seed: int | None = None
    """The seed of all random steps; None for that of the pipeline."""
    on_error: Any = "raise"
    """`sv.Skip()` counts failed requests, `sv.Substitute(value)` answers with the value instead."""
    most: int = 1024
    """Requests in flight; a further one is answered with 429."""
    request_bytes: int = 1 << 20
    """The largest body of a request."""
    rate: float | None = None
    """Requests per second and token; None for no limit."""
    kept: int = 4096
    """Replies that are kept for requests that come again with the same `Idempotency-Key`."""

    def __post_init__(self) -> None:
        duration(self.deadline)
        if self.slo is not None:
            duration(self.slo)
        if self.rate is not None:
            duration(self.rate)
        natural("serve(most=…)", self.most, least=1)
        natural("serve(request_bytes=…)", self.request_bytes, least=1)
        natural("serve(kept=…)", self.kept)
        if self.on_error != "raise" and not isinstance(self.on_error, Skip | Substitute):
            raise PlanError(
                f'on_error= takes "raise", sv.Skip() or sv.Substitute(value), not {self.on_error!r}'
            )


@dataclass(frozen=True, kw_only=True)
class ListenOptions:
    """Where `pipeline.serve(…)` listens."""

    host: str = "127.0.0.1"
    port: int = 8000
    tls: tuple[str, str] | None = None
    """The files of a certificate and its key, in PEM; needed beyond this machine."""
    behind_proxy: bool = False
    """Whether a proxy in front of it ends TLS."""

    def __post_init__(self) -> None:
        flag("serve(behind_proxy=…)", self.behind_proxy)
        natural("serve(port=…)", self.port, most=65535)


class AsgiArguments(TypedDict, total=False):
    """`ServeOptions` as keyword arguments, for signatures."""

    token: str | None
    slo: float | None
    deadline: float
    seed: int | None
    on_error: Any
    most: int
    request_bytes: int
    rate: float | None
    kept: int


class ServeArguments(AsgiArguments, total=False):
    """`ServeOptions` and `ListenOptions` as keyword arguments, for signatures."""

    host: str
    port: int
    tls: tuple[str, str] | None
    behind_proxy: bool
