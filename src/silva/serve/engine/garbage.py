"""What is in memory when a server begins is not looked at by garbage collections while it runs.

A full collection visits every object of the process. The libraries and models of a pipeline are
some hundred thousand, for which all requests wait 0.1 s, every few seconds; what requests
make and leave is little. So the objects that are there before the first request are set aside
(`gc.freeze`), until the last server of the process is closed. Reference counts free them as ever;
only cycles among them wait until then.
"""

from __future__ import annotations

import gc
import threading

_lock = threading.Lock()
_servers = 0
"""Servers of this process for which objects are set aside: collections are the process's."""


class SetAside:
    """The objects that were there when one server began."""

    def __init__(self) -> None:
        global _servers
        self._is_kept = True
        with _lock:
            theirs = not _servers and gc.get_freeze_count()  # the program's own: never undone
            if theirs:
                self._is_kept = False
                return
            _servers += 1
            gc.collect()
            gc.freeze()

    def renew(self) -> None:
        """Looks at all objects once more, and sets aside those that are left: after something
        large was replaced."""
        with _lock:
            if self._is_kept:
                gc.unfreeze()
                gc.collect()
                gc.freeze()

    def close(self) -> None:
        """Gives the objects back to garbage collection, if no other server runs."""
        global _servers
        with _lock:
            if self._is_kept:
                self._is_kept = False
                _servers -= 1
                if not _servers:
                    gc.unfreeze()
