"""Who may ask a server, and how much: tokens with their limits.

A server has one token, or a name and a token for each tenant. What is kept of answers and replies
belongs to one tenant, and so do its limits.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from silva.errors import PlanError
from silva.plan.arguments import explains_verbs, flag, natural, positive
from silva.serve.http.idempotency import Attempts
from silva.serve.tenant import Purse, Tenant
from silva.service.access import server_token

_SCHEME = b"Bearer "


@explains_verbs
@dataclass(frozen=True)
class Access:
    """A token, and what it allows: `serve(token={"ann": sv.Access("…", rate=5)})`.

    >>> Access("sixteen-characters", rate=0.5, in_flight=4)
    Access(rate=0.5, bytes=None, in_flight=4, money=None, metrics=False)
    """

    token: str = field(repr=False)
    """What its clients show as `Authorization: Bearer …`."""
    rate: float | None = None
    """Requests per second, with bursts of one second; None for no limit."""
    bytes: float | None = None
    """Bytes of requests and replies per second, with bursts of one second; None for no limit."""
    in_flight: int | None = None
    """Requests at once; None for no limit beyond that of the server."""
    money: float | None = None
    """What its requests may spend on models until the server ends, in the currency of their prices.
    A call that might exceed it is not made."""
    metrics: bool = False
    """Whether it may read `/metrics`, which shows what all tenants do. An only token may."""

    def __post_init__(self) -> None:
        server_token(self.token)
        for name in ("rate", "bytes", "money"):
            if (limit := getattr(self, name)) is not None:
                positive(f"Access({name}=…)", limit)
        if self.in_flight is not None:
            natural("Access(in_flight=…)", self.in_flight, least=1)
        flag("Access(metrics=…)", self.metrics)


Tokens = str | Access | Mapping[str, str | Access]
"""What `serve(token=…)` takes."""


class Account:
    """A tenant at a server: what it has used of its limits."""

    def __init__(self, name: str, access: Access, tenant: Tenant, kept_bytes: int) -> None:
        self.name = name
        self.access = access
        self.tenant = tenant
        self.flying = 0
        self.refused = 0
        self.attempts = Attempts(kept_bytes)
        self._requests = Bucket(access.rate)
        self._bytes = Bucket(access.bytes)

    def wait(self, now: float) -> float:
        """Seconds until its rates admit a request; 0 counts one."""
        wait = max(self._requests.wait(now), self._bytes.wait(now))
        if not wait:
            self._requests.take(1)
        return wait

    def moved(self, count: int) -> None:
        """Counts bytes of a request or a reply."""
        self._bytes.take(count)

    @property
    def is_full(self) -> bool:
        return self.access.in_flight is not None and self.flying >= self.access.in_flight


class Bucket:
    """So much per second, with bursts of one second, and of one whole request at least."""

    def __init__(self, per_second: float | None) -> None:
        self._rate = per_second
        self._left = self._most = max(per_second or 0.0, 1.0)
        self._at = -math.inf

    def wait(self, now: float) -> float:
        """Seconds until there is something left.

        >>> bucket = Bucket(0.5)
        >>> bucket.wait(0.0), bucket.take(1), bucket.wait(0.0), bucket.wait(2.0)
        (0.0, None, 2.0, 0.0)
        """
        if self._rate is None:
            return 0.0
        if now > self._at:
            self._left = min(self._left + (now - self._at) * self._rate, self._most)
            self._at = now
        return max(1.0 - self._left, 0.0) / self._rate

    def take(self, amount: float) -> None:
        """Takes what a request uses; what it uses beyond the rest is a debt."""
        self._left -= amount


class Accounts:
    """The tenants of a server, found by their tokens."""

    def __init__(
        self,
        tokens: Tokens | None,
        *,
        rate: float | None = None,
        kept_bytes: int,
        shared: bool = False,
    ) -> None:
        """`rate` holds for tokens without one of their own. `shared`: tenants share what models
        have answered."""
        if isinstance(tokens, Mapping) and not tokens:
            raise PlanError('token={"name": token} needs at least one tenant')
        several = tokens if isinstance(tokens, Mapping) else {"": tokens}
        self._secret = secrets.token_bytes(32)
        self._known: dict[bytes, Account] = {}
        self.single = not isinstance(tokens, Mapping)
        for name, given in several.items():
            access = given if isinstance(given, Access) else Access(server_token(given))
            if access.rate is None and rate is not None:
                access = replace(access, rate=rate)
            if not self.single and (not isinstance(name, str) or not name):
                raise PlanError(f"a tenant has a name, not {name!r}")
            tenant = Tenant("" if shared else name, Purse(access.money))
            key = self._digest(_SCHEME + access.token.encode())
            if key in self._known:
                raise PlanError(
                    f"the tenants {self._known[key].name!r} and {name!r} have one token"
                )
            self._known[key] = Account(name, access, tenant, kept_bytes)

    def __iter__(self) -> Iterator[Account]:
        return iter(self._known.values())

    def find(self, shown: bytes) -> Account | None:
        """The account of an `Authorization` header. The time that it takes says nothing about a
        token: what is compared is a digest that nobody outside can compute."""
        return self._known.get(self._digest(shown))

    def may_read_metrics(self, account: Account) -> bool:
        return self.single or account.access.metrics

    def _digest(self, shown: bytes) -> bytes:
        return hashlib.blake2b(shown, key=self._secret, digest_size=16).digest()
