"""What went wrong with an object, in words of our own.

The library's messages hold the full address with its signature, and answers of a server may repeat
a key. So none of their text is passed on: only what is recognised in it is told.
"""

from __future__ import annotations

import re
from typing import Any

from silva.errors import SourceError

_STATUS = re.compile(r"status code: (\d{3})")
_KNOWN = (
    ("169.254.169.254", "no credentials were found in the environment or on this machine"),
    ("metadata.google.internal", "no credentials were found in the environment or on this machine"),
    ("redirect without LOCATION", "the bucket is in another region: set AWS_REGION"),
    ("dns error", "the name of the server is not known"),
    ("onnection refused", "the server refuses connections"),
    ("ertificate", "the server's certificate is not trusted"),
    ("timed out", "the server did not answer in time"),
    ("Range request not supported", "the server does not serve parts of a file"),
    ("Account must be specified", "no account is given: set AZURE_STORAGE_ACCOUNT_NAME"),
    ("error decoding response body", "the answer broke off"),
    ("end of file before message length reached", "the answer broke off"),
)
_STATUSES = {
    "404": "it does not exist (any more), or its bucket does not",
    "416": "it has changed since it was listed, and is shorter now",
}
_KINDS = {
    "FileNotFoundError": "it does not exist (any more)",
    "PermissionDeniedError": "access is denied with the credentials there are",
    "UnauthenticatedError": "the credentials there are were not accepted",
    "EOFError": "the answer broke off",
    "InvalidPathError": "its name cannot be used (empty parts, `.` and `..` are not supported)",
    "NotSupportedError": "the server does not support this",
}


class GoneError(SourceError):
    """An object does not exist (any more), or its bucket does not."""


class ChangedError(SourceError):
    """An object is another than the one that was listed."""


def has_no_answer(error: BaseException) -> bool:
    """Whether there was no answer, so that nobody knows whether it was done."""
    return type(error).__name__ == "GenericError" and _STATUS.search(str(error)) is None


def reason(error: BaseException, deadline: float) -> str:
    """One clause, without any text of the library or the server."""
    if isinstance(error, TimeoutError):
        return f"it was not there after {deadline:g} s"
    text = str(error)
    told = next((told for sign, told in _KNOWN if sign in text), None)
    status = _STATUS.search(text)
    if told is None:
        told = _KINDS.get(type(error).__name__)
    if told is None:
        told = "the server cannot be reached" if status is None else "the server refuses"
    if status is not None:
        told = _STATUSES.get(status[1], told)
    return told if status is None else f"{told} (status {status[1]})"


def failed_object(deed: str, shown: str, error: BaseException, deadline: float) -> SourceError:
    """`deed` is what could not be done with it."""
    kind = GoneError if isinstance(error, FileNotFoundError) else SourceError
    return kind(f"cannot {deed} {shown}: {reason(error, deadline)}")


def version_of(meta: Any) -> str:
    """What changes when an object does: its ETag, or else the time of its last change.

    >>> version_of({"e_tag": 'W/"5f3a"', "last_modified": None})  # some lists have no quotes
    'etag 5f3a'
    """
    if meta["e_tag"]:
        return f"etag {meta['e_tag'].removeprefix('W/').strip(chr(34))}"
    return f"time {meta['last_modified'].isoformat()}"


def check_unchanged(shown: str, size: int, version: str, meta: Any) -> None:
    actual = version_of(meta)
    if meta["size"] != size:
        how = f"it had {size:,} bytes, now {meta['size']:,}"
    elif version != actual and version.split()[0] == actual.split()[0]:
        how = "it has another ETag" if meta["e_tag"] else "it was written again"
    else:
        return
    raise ChangedError(
        f"{shown} has changed since it was listed: {how}. "
        "Make the pipeline again to read the new objects."
    )
