"""The count of bytes that the other end of a connection has not read."""

from __future__ import annotations

import socket
import sys

import pytest

from tests.e2e.unread_bytes import unread_bytes


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's diagnosis of sockets is Linux's")
def test_bytes_count_until_the_other_end_has_read_them():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as far:
        near, _ = server.accept()
        with near:
            ends = near.getsockname(), near.getpeername()
            assert unread_bytes(*ends) == 0
            near.sendall(b"12345")
            assert unread_bytes(*ends) == 5
            far.recv(2)
            assert unread_bytes(*ends) == 3
            far.recv(3)
            assert unread_bytes(*ends) == 0
    assert unread_bytes(*ends) == 0
