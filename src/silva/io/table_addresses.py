"""Tables of libraries that have clients of their own for object stores (Delta, Lance).

The clients find credentials in the environment, as silva's own does. Nothing of that is kept in a
source, and none of their words are passed on: they may repeat a key.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from silva.errors import PlanError, SilvaError, SourceError
from silva.io.addresses import SCHEMES, parse_address, scheme_of
from silva.io.object_errors import reason

_LISTED = tuple(scheme for scheme in SCHEMES if not scheme.startswith("http"))
_OF_STORES = ("status code", "Generic", "error sending request", "AWS Error")
"""What only messages about a store hold."""


def table_place(path: str | os.PathLike[str], reader: str) -> str:
    """Where a table is: an absolute path, or an address without a slash at the end.

    >>> table_place("s3://bucket/events/", "read_delta")
    's3://bucket/events'
    """
    scheme = scheme_of(path)
    if not scheme:
        return os.path.abspath(os.path.expanduser(os.fspath(path)))
    if scheme not in _LISTED:  # the rest may hold credentials and is not repeated
        raise PlanError(
            f"{reader} reads no {scheme}:// addresses: a table is a folder, which can be listed in "
            f"{', '.join(_LISTED)} and on local disks"
        )
    return parse_address(os.fspath(path)).shown.rstrip("/")


def client_options(place: str) -> dict[str, str]:
    """What the client of a library must be told beyond the environment: plain http is used only
    where an endpoint in the environment says so."""
    endpoints = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT")
    plain = any(os.environ.get(name, "").startswith("http://") for name in endpoints)
    return {"allow_http": "true"} if plain and scheme_of(place) else {}


def file_at(place: str, name: str) -> str:
    """A file of a table, which its log names from the table on, or in full.

    >>> file_at("s3://bucket/events", "k=a/1.parquet"), file_at("/tables/events", "1.parquet")
    ('s3://bucket/events/k=a/1.parquet', '/tables/events/1.parquet')
    """
    if scheme_of(name):
        return name
    if scheme_of(place):
        return f"{place}/{name}"
    return os.path.normpath(os.path.join(place, name))


@contextmanager
def telling(place: str, what: str) -> Iterator[None]:
    """Tells in words of our own what went wrong with a table at an address."""
    try:
        yield
    except SilvaError:
        raise
    except Exception as error:
        if not scheme_of(place):
            raise
        known = any(sign in str(error) for sign in _OF_STORES)
        told = reason(error, 0) if known else "there is no such table, or it is damaged"
    else:
        return
    raise SourceError(f"{place} cannot be read as {what}: {told}")
