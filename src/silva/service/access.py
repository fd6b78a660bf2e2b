"""Access to a service: readers show its token, and need TLS unless they are on this machine."""

from __future__ import annotations

import hmac
import ipaddress
import os
import secrets
import ssl
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from silva.errors import PlanError

VARIABLE = "SILVA_TOKEN"
"""The environment variable that holds the token where none is passed."""

Certificate = tuple[str | Path, str | Path]
"""The paths of a certificate and of its private key, in PEM."""


class ServiceAddress(NamedTuple):
    host: str
    port: int
    secure: bool


def server_token(given: str | None) -> str:
    """The token of a service: the one passed, the one in the environment, or a new random one."""
    token = os.environ.get(VARIABLE) if given is None else given
    if token is None:
        return secrets.token_urlsafe(32)
    return _checked(token)


def client_token(given: str | None) -> str:
    """The token that a reader sends."""
    token = os.environ.get(VARIABLE) if given is None else given
    if token is None:
        raise PlanError(
            f"reading from a service needs its token: pass token=…, or set ${VARIABLE} in the "
            "environment"
        )
    return _checked(token)


def _checked(token: str) -> str:
    if not isinstance(token, str) or len(token) < 16 or not token.isascii():
        raise PlanError("a token has at least 16 characters, all of them ASCII")
    if any(c.isspace() or not c.isprintable() for c in token):
        raise PlanError(
            "a token has no spaces or line breaks: if it was read from a file, strip it first"
        )
    return token


def has_token(shown: str | None, token: str) -> bool:
    """Whether the header holds the token; compared in constant time."""
    return hmac.compare_digest((shown or "").encode(), f"Bearer {token}".encode())


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, so that nothing sent to it leaves the machine.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_address(address: str) -> ServiceAddress:
    """Splits `http://127.0.0.1:8765`, or `https://host:8765` for a service on another machine."""
    shown = f"a service's address is http(s)://host:port, not {address!r}"
    if not isinstance(address, str):
        raise PlanError(shown)
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise PlanError(shown) from None
    if parts.username or parts.password:
        raise PlanError("a service's address has no user or password: pass token=… instead")
    if parts.scheme not in ("http", "https") or not host or port is None:
        raise PlanError(shown)
    if parts.scheme == "http" and not is_loopback(host):
        raise PlanError(
            f"{address} would send the token unencrypted: use https:// for a service on another "
            "machine"
        )
    return ServiceAddress(host, port, parts.scheme == "https")


def server_context(host: str, certificate: Certificate | None) -> ssl.SSLContext | None:
    """The TLS context of a service at `host`; None on loopback, which needs none."""
    if certificate is None:
        if is_loopback(host):
            return None
        raise PlanError(
            f"a service at {host} listens beyond loopback and therefore needs TLS: pass "
            "Service(…, certificate=(certificate file, key file))"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(*map(str, certificate))
    except (OSError, ssl.SSLError, TypeError) as error:
        raise PlanError(f"certificate={certificate!r} cannot be used: {error}") from None
    return context


def client_context(
    address: ServiceAddress, certificate: str | Path | None
) -> ssl.SSLContext | None:
    """The TLS context of a reader, which trusts this certificate or the system's; None for
    `http://`."""
    if not address.secure:
        if certificate is None:
            return None
        raise PlanError(
            f"certificate={certificate!r} is for https:// addresses, and this one is http://: "
            "leave it out, or start the service with a certificate"
        )
    try:
        return ssl.create_default_context(cafile=None if certificate is None else str(certificate))
    except (OSError, ValueError) as error:
        raise PlanError(f"certificate={certificate!r} cannot be read: {error}") from None
