"""Addresses of objects: `s3://bucket/key`, `gs://…`, `az://container/…`, `http(s)://host/…`.

An address is parsed once, when a source is made. Credentials in it (a signed query, a user and
password) are kept apart from what is shown, and wrapped so that no `repr` contains them.
"""

from __future__ import annotations

import fnmatch
import functools
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from silva.errors import PlanError
from silva.io.paths import scheme_of
from silva.plan.arguments import path_of

_MAGIC = re.compile(r"[*?[]")


@dataclass(frozen=True, order=True)
class Secret:
    """Text that is used but never shown.

    >>> Secret("X-Amz-Signature=5f3a")
    Secret(…)
    """

    text: str = field(repr=False)

    def __repr__(self) -> str:
        return "Secret(…)" if self.text else "Secret()"

    __str__ = __repr__


@dataclass(frozen=True)
class Root:
    """A bucket, a container or a web server: what one client talks to."""

    url: str
    """The scheme and the bucket or host, without a slash at the end."""
    query: Secret = Secret("")
    """The query of a web address, which may be a signature."""
    login: Secret = Secret("")
    """`user:password` of a web address."""

    @property
    def is_web(self) -> bool:
        return self.url.startswith("http")

    def shown(self, key: str) -> str:
        """The address of an object, without credentials."""
        return f"{self.url}/{quote(key) if self.is_web else key}"


@dataclass(frozen=True)
class Address:
    """An address below a root."""

    root: Root
    key: str
    """The key of an object, the prefix of several (a folder), or a glob."""

    @property
    def shown(self) -> str:
        return self.root.shown(self.key)

    @property
    def is_glob(self) -> bool:
        return not self.root.is_web and _MAGIC.search(self.key) is not None

    @property
    def folder(self) -> str:
        """The part of a glob before the first name with a wildcard: the folder to list."""
        names = self.key.split("/")
        plain = next(i for i, name in enumerate(names) if _MAGIC.search(name))
        return "/".join(names[:plain])


def local_folder(path: str | os.PathLike[str], what: str) -> Path:
    """A folder on a disk. An address is refused: it would become a folder called `s3:`.

    >>> local_folder("s3://bucket/events", "tables")
    Traceback (most recent call last):
    silva.errors.PlanError: tables are on local disks, not at s3:// addresses
    """
    scheme = scheme_of(path)
    if scheme:  # the rest may hold credentials and is not repeated
        raise PlanError(f"{what} are on local disks, not at {scheme}:// addresses")
    return path_of(f"the folder of {what}", path)


def parse_address(text: str) -> Address:
    """
    >>> parse_address("s3://bucket/a/*.jpg").folder
    'a'
    >>> parse_address("https://host/a%20b.jpg?signature=5f3a").shown
    'https://host/a%20b.jpg'
    """
    scheme = scheme_of(text)
    try:
        parts = urlsplit(text)
        is_web, host, login = scheme.startswith("http"), parts.hostname or "", ""
        if is_web and parts.port is not None:
            host = f"{host}:{parts.port}"
    except ValueError:  # its message repeats the address
        raise PlanError(f"a {scheme}:// address is not valid: check its host and port") from None
    if "@" in parts.netloc:
        if not is_web:
            raise PlanError(
                f"a {scheme}:// address must not contain a password or key: set credentials in the "
                "environment (see docs/object-stores.md)"
            )
        login = unquote(parts.netloc.rpartition("@")[0])
    if not host:
        raise PlanError(f"a {scheme}:// address needs a bucket or a host: {scheme}://name/…")
    if is_web:
        root = Root(f"{scheme}://{host}", Secret(parts.query), Secret(login))
        return Address(root, unquote(parts.path.lstrip("/")))
    bucket, _, key = text.partition("://")[2].partition("/")  # a key may hold `?` and `#`
    return Address(Root(f"{scheme}://{bucket}"), key)


@functools.lru_cache(maxsize=64)
def _names(glob: str) -> tuple[re.Pattern[str] | None, ...]:
    """The names of a path, as patterns; None stands for any number of names."""
    return tuple(
        None if name == "**" else re.compile(fnmatch.translate(name)) for name in glob.split("/")
    )


def matches(glob: str, key: str) -> bool:
    """Matches as for local files: `*` ends at a `/`, `**` does not; neither matches hidden names.

    >>> matches("a/**/*.jpg", "a/1.jpg"), matches("a/**/*.jpg", "a/b/c/1.jpg")
    (True, True)
    >>> matches("a/*", "a/b/1.jpg"), matches("a/*", "a/.x"), matches("a/[12].jpg", "a/2.jpg")
    (False, False, True)
    """
    names = _names(glob)
    reached = _past_any(names, {0})  # how many names of the glob have been matched
    for part in key.split("/"):
        hidden = part.startswith(".")
        after = set()
        for place in reached:
            if place == len(names):
                continue
            name = names[place]
            if name is None:
                after |= set() if hidden else {place}
            elif name.match(part) and (not hidden or name.pattern.startswith(r"(?s:\.")):
                after.add(place + 1)
        reached = _past_any(names, after)
    return len(names) in reached


def _past_any(names: tuple[re.Pattern[str] | None, ...], reached: set[int]) -> set[int]:
    """These positions, and those after a `**` that matches nothing."""
    found = set(reached)
    for place, name in enumerate(names):
        if place in found and name is None:
            found.add(place + 1)
    return found
