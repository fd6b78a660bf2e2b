"""A line between two processes that can be cut, reset, lost, slowed or silenced."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time

_PIECE = 1 << 16
_LOOK = 0.02
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: a socket that is closed sends RST, and drops what was under way."""


class Relay:
    """Copies what comes at its port to another one, and back."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._lines: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.broken = False
        """No new line is to be had."""
        self.pause = 0.0
        """Seconds that each piece takes."""
        self.most = _PIECE
        """Bytes of a piece."""
        self._loud = threading.Event()
        self._loud.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                if self.broken:
                    raise OSError
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            self._lines |= {near, far}
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=pair, daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):  # closed while it was waited for
            while data := self._piece(source):
                self._loud.wait()
                time.sleep(self.pause)
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            self._lines.discard(end)

    def _piece(self, source: socket.socket) -> bytes:
        """A socket that somebody waits for is not closed before that wait ends."""
        while not select.select([source], [], [], _LOOK)[0]:
            pass
        return source.recv(self.most)

    def cut(self) -> None:
        for line in list(self._lines):
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def reset(self) -> None:
        for line in list(self._lines):
            with contextlib.suppress(OSError):
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                line.close()
            self._lines.discard(line)

    def silence(self) -> None:
        """Lines stay, and new ones are to be had, but nothing comes over them."""
        self._loud.clear()

    def speak(self) -> None:
        self._loud.set()

    def close(self) -> None:
        self._listener.close()
        self.speak()
        self.cut()
