"""Who may read from a service: those who have its token, and off this machine only in cipher."""

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
"""Of the environment: the token where none is given."""

Certificate = tuple[str | Path, str | Path]
"""The files of a certificate and of its key, in PEM."""


class Address(NamedTuple):
    host: str
    port: int
    secure: bool


def new_token(given: str | None) -> str:
    """The token of a service: given, of the environment, or a new one that nobody can guess."""
    token = os.environ.get(VARIABLE) if given is None else given
    if token is None:
        return secrets.token_urlsafe(32)
    return _checked(token)


def known_token(given: str | None) -> str:
    """The token that a reader shows."""
    token = os.environ.get(VARIABLE) if given is None else given
    if token is None:
        raise PlanError(f"a service lets in only who has its token: token=…, or ${VARIABLE}")
    return _checked(token)


def _checked(token: str) -> str:
    if not isinstance(token, str) or len(token) < 16 or not token.isascii():
        raise PlanError("a token has 16 characters at least, all of them ASCII")
    if any(c.isspace() or not c.isprintable() for c in token):
        raise PlanError("a token has no spaces or line ends: was it read from a file with one?")
    return token


def is_right(shown: str | None, token: str) -> bool:
    """Whether this header shows the token; takes as long whatever is wrong with it."""
    return hmac.compare_digest((shown or "").encode(), f"Bearer {token}".encode())


def is_loopback(host: str) -> bool:
    """Whether what is said there stays on this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_address(address: str) -> Address:
    """`http://127.0.0.1:8765`, or `https://host:8765` for a service elsewhere."""
    shown = f"a service's address is http(s)://host:port, not {address!r}"
    if not isinstance(address, str):
        raise PlanError(shown)
    parts = urlsplit(address)
    if parts.username or parts.password:
        raise PlanError("a service's address has no user or password: token=… says who you are")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        raise PlanError(shown) from None
    if parts.scheme not in ("http", "https") or not host or port is None:
        raise PlanError(shown)
    if parts.scheme == "http" and not is_loopback(host):
        raise PlanError(
            f"{address} would send the token in the open: off this machine a service is reached by "
            "https://"
        )
    return Address(host, port, parts.scheme == "https")


def server_context(host: str, certificate: Certificate | None) -> ssl.SSLContext | None:
    """How a service at `host` encrypts what it sends; None where it need not."""
    if certificate is None:
        if is_loopback(host):
            return None
        raise PlanError(
            f"a service at {host} can be reached from elsewhere, which it must be in cipher: "
            "Service(…, certificate=(certificate file, key file))"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(*map(str, certificate))
    except (OSError, ssl.SSLError, TypeError) as error:
        raise PlanError(f"certificate={certificate!r} cannot be used: {error}") from None
    return context


def reader_context(certificate: str | Path | None) -> ssl.SSLContext:
    """How a reader makes sure of whom it speaks to: by this certificate, or the system's."""
    try:
        return ssl.create_default_context(cafile=None if certificate is None else str(certificate))
    except (OSError, ssl.SSLError) as error:
        raise PlanError(f"certificate={certificate!r} cannot be read: {error}") from None
