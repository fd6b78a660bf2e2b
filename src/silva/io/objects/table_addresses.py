"""Tables of libraries that have their own clients for object stores (Delta, Lance).

The clients find credentials in the environment, as silva's own client does. A source keeps none of
them, and no text of the clients is passed on, since it may repeat a key.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from silva.errors import PlanError, SilvaError, SourceError
from silva.io.objects.addresses import parse_address
from silva.io.objects.errors import reason
from silva.io.paths import SCHEMES, scheme_of

_LISTED = tuple(scheme for scheme in SCHEMES if not scheme.startswith("http"))
_OF_STORES = ("status code", "Generic", "error sending request", "AWS Error")
"""Text that occurs only in messages about an object store."""


def table_location(path: str | os.PathLike[str], reader: str) -> str:
    """Where a table is: an absolute path, or an address without a slash at the end.

    >>> table_location("s3://bucket/events/", "read_delta")
    's3://bucket/events'
    """
    scheme = scheme_of(path)
    if not scheme:
        return os.path.abspath(os.path.expanduser(os.fspath(path)))
    if scheme not in _LISTED:  # the rest may hold credentials and is not repeated
        raise PlanError(
            f"{reader} reads no {scheme}:// addresses: a table is a folder, and only "
            f"{', '.join(_LISTED)} and local disks can list one"
        )
    return parse_address(os.fspath(path)).shown.rstrip("/")


def client_options(place: str) -> dict[str, str]:
    """Options for the client of a library: plain http is allowed only if an endpoint in the
    environment uses it."""
    endpoints = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT")
    plain = any(os.environ.get(name, "").startswith("http://") for name in endpoints)
    return {"allow_http": "true"} if plain and scheme_of(place) else {}


def file_at(place: str, name: str) -> str:
    """The address of a file that the log of a table names, relative to the table or in full.

    >>> file_at("s3://bucket/events", "k=a/1.parquet"), file_at("/tables/events", "1.parquet")
    ('s3://bucket/events/k=a/1.parquet', '/tables/events/1.parquet')
    """
    if scheme_of(name):
        return name
    if scheme_of(place):
        return f"{place}/{name}"
    return os.path.normpath(os.path.join(place, name))


@contextmanager
def naming_table(place: str, what: str) -> Iterator[None]:
    """Turns a client's error about a table at an address into a `SourceError` without its text."""
    try:
        yield
    except SilvaError:
        raise
    except Exception as error:
        if not scheme_of(place):
            raise
        known = any(sign in str(error) for sign in _OF_STORES)
        why = reason(error, 0) if known else "there is no such table, or it is damaged"
    else:
        return
    raise SourceError(f"{place} cannot be read as {what}: {why}")
