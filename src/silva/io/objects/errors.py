"""Errors about objects, in silva's own words.

Messages of the library contain the full address with its signature, and responses of a server may
repeat a key. So none of their text is passed on; only known causes are reported.
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
    ("dns error", "the server's name cannot be resolved"),
    ("onnection refused", "the server refuses connections"),
    ("ertificate", "the server's certificate is not trusted"),
    ("timed out", "the server did not answer in time"),
    ("Range request not supported", "the server does not serve parts of a file"),
    ("Account must be specified", "no account is set: set AZURE_STORAGE_ACCOUNT_NAME"),
    ("error decoding response body", "the response was cut off"),
    ("end of file before message length reached", "the response was cut off"),
)
_STATUSES = {
    "404": "it does not exist (any more), or its bucket does not",
    "416": "it has changed since it was listed, and is shorter now",
}
_KINDS = {
    "FileNotFoundError": "it does not exist (any more)",
    "PermissionDeniedError": "access is denied with the credentials that were found",
    "UnauthenticatedError": "the credentials that were found were not accepted",
    "EOFError": "the response was cut off",
    "InvalidPathError": "its name cannot be used (empty parts, `.` and `..` are not supported)",
    "NotSupportedError": "the server does not support this",
}


class GoneError(SourceError):
    """An object does not exist (any more), or its bucket does not."""


class ChangedError(SourceError):
    """An object has changed since it was listed."""


def has_no_answer(error: BaseException) -> bool:
    """Whether there was no response, so that it is unknown whether the request was done."""
    return type(error).__name__ == "GenericError" and _STATUS.search(str(error)) is None


def reason(error: BaseException, deadline: float) -> str:
    """The cause of an error, without any text of the library or the server."""
    if isinstance(error, TimeoutError):
        return f"it was not there after {deadline:g} s"
    text = str(error)
    cause = next((cause for sign, cause in _KNOWN if sign in text), None)
    status = _STATUS.search(text)
    if cause is None:
        cause = _KINDS.get(type(error).__name__)
    if cause is None:
        cause = "the server cannot be reached" if status is None else "the server refuses"
    if status is not None:
        cause = _STATUSES.get(status[1], cause)
    return cause if status is None else f"{cause} (status {status[1]})"


def failed_object(deed: str, shown: str, error: BaseException, deadline: float) -> SourceError:
    """The error for an object; `deed` is the verb for what failed, e.g. `read`."""
    kind = GoneError if isinstance(error, FileNotFoundError) else SourceError
    return kind(f"cannot {deed} {shown}: {reason(error, deadline)}")


def version_of(meta: Any) -> str:
    """The version of an object: its ETag, or else the time of its last change.

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
        "Build the pipeline again to read the new objects."
    )
