"""The arguments of `serve` and `asgi`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from silva.errors import PlanError
from silva.plan.arguments import (
    duration,
    flag,
    natural,
    one_of,
    path_of,
    positive,
    several,
    shown,
    text,
    whole,
)
from silva.run.failures import Skip, Substitute
from silva.serve.http.access import Tokens


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """The arguments of `pipeline.asgi(…)`, and most of those of `pipeline.serve(…)`."""

    token: Tokens | None = None
    """What clients show as `Authorization: Bearer …`; None for the one in `$SILVA_TOKEN`, or else a
    new random one. `{"ann": token, "bob": sv.Access(token, rate=5)}` are several tenants, each with
    answers and limits of its own."""
    slo: float | None = None
    """Seconds within which a request should be answered: batches are as large as that allows."""
    deadline: float = 60.0
    """Seconds after which a request is given up, and answered with 504."""
    seed: int | None = None
    """The seed of all random steps; None for that of the pipeline."""
    on_error: Any = "raise"
    """`sv.Skip()` counts failed requests, `sv.Substitute(value)` answers with the value instead."""
    most_rows: int | None = None
    """The largest batch of a step, where its memory bounds it; None: as large as time allows."""
    refresh: float | None = None
    """Seconds between two looks for new versions of tables and indices, which then take over; None:
    those of the start stay. A version that was chosen stays too."""
    most: int = 1024
    """Requests in flight; a further one is answered with 429."""
    request_bytes: int = 1 << 20
    """The largest body of a request."""
    rate: float | None = None
    """Requests per second and token, with bursts of one second; None for no limit."""
    kept_bytes: int = 16 << 20
    """Bytes of replies that are kept for each token, for requests that come again with the same
    `Idempotency-Key`."""
    shared: bool = False
    """Whether tenants share what models have answered."""

    def __post_init__(self) -> None:
        duration("serve(deadline=…)", self.deadline, finite=True)
        for name in ("slo", "refresh"):
            if (seconds := getattr(self, name)) is not None:
                duration(f"serve({name}=…)", seconds, finite=True)
        if self.seed is not None:
            whole("serve(seed=…)", self.seed)
        if self.rate is not None:
            positive("serve(rate=…)", self.rate)
        natural("serve(most=…)", self.most, least=1)
        if self.most_rows is not None:
            natural("serve(most_rows=…)", self.most_rows, least=1)
        natural("serve(request_bytes=…)", self.request_bytes, least=1)
        natural("serve(kept_bytes=…)", self.kept_bytes)
        flag("serve(shared=…)", self.shared)
        raises = isinstance(self.on_error, str) and self.on_error == "raise"
        if not raises and not isinstance(self.on_error, Skip | Substitute):
            raise PlanError(
                'serve(on_error=…) takes "raise", sv.Skip() or sv.Substitute(value), not '
                f"{shown(self.on_error)}"
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
        text("serve(host=…)", self.host)
        flag("serve(behind_proxy=…)", self.behind_proxy)
        natural("serve(port=…)", self.port, most=65535)
        if self.tls is not None:
            files = several("serve(tls=…)", self.tls)
            if len(files) != 2:
                raise PlanError(f"serve(tls=…) takes (certificate, key), not {self.tls!r}")
            for file in files:
                path_of("serve(tls=…)", file)


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Where the costly steps of `pipeline.serve(…)` run."""

    cluster: str | None = None
    """`"auto"` for the Ray cluster that this process is on, `"local"` for one on this machine, or
    None for this process."""
    sample: Sequence[Mapping[str, Any]] = ()
    """Requests on which the costs of steps are measured before; without, each step that calls a
    function or a local model counts alike."""

    def __post_init__(self) -> None:
        one_of("serve(cluster=…)", self.cluster, None, "auto", "local")
        if several("serve(sample=…)", self.sample) and self.cluster is None:
            raise PlanError("serve(sample=…) is for placing steps on a cluster: pass cluster=")


class AsgiArguments(TypedDict, total=False):
    """`ServeOptions` as keyword arguments, for signatures."""

    token: Tokens | None
    slo: float | None
    deadline: float
    seed: int | None
    on_error: Any
    most_rows: int | None
    refresh: float | None
    most: int
    request_bytes: int
    rate: float | None
    kept_bytes: int
    shared: bool


class ServeArguments(AsgiArguments, total=False):
    """`ServeOptions`, `ListenOptions` and `ClusterOptions` as keyword arguments, for signatures."""

    host: str
    port: int
    tls: tuple[str, str] | None
    behind_proxy: bool
    cluster: str | None
    sample: Sequence[Mapping[str, Any]]
