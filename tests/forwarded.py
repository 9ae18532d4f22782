"""Connects standard input and output with a port of 127.0.0.1: what QEMU starts for each connection of its machine."""

from __future__ import annotations

import os
import socket
import sys
import threading


def _pump(source: int, sink: int) -> None:
    while data := os.read(source, 65_536):
        view = memoryview(data)
        while view:
            view = view[os.write(sink, view) :]


def main() -> None:
    """The program."""
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        back = threading.Thread(target=_pump, args=(connection.fileno(), 1), daemon=True)
        back.start()
        _pump(0, connection.fileno())
        connection.shutdown(socket.SHUT_WR)
        back.join()


if __name__ == "__main__":
    main()
