"""Ports of this machine that a program of ours is to listen on: one line that names the option when one is taken."""

from __future__ import annotations

import errno
import socket

from agent.errors import ConfigurationError


def refused_port(host: str, port: int, error: OSError | UnicodeError, option: str) -> ConfigurationError:
    """What is said when nothing can listen there.

    Args:
        host: the address where it was to listen.
        port: the port there.
        error: why it cannot.
        option: the option that names the port, such as ``--port``.
    """
    if isinstance(error, UnicodeError):
        fault = f"{host!r} is no host name: give the name or an address of this machine"
    elif error.errno == errno.EADDRINUSE:
        fault = f"port {port} on {host} is in use: stop what listens there, or give another {option} (0 takes any)"
    elif error.errno == errno.EACCES:
        fault = f"port {port} on {host} is for root alone: give a {option} of 1024 or more (0 takes any)"
    else:
        fault = f"cannot listen on {host} port {port}: {error.strerror or error}"
    return ConfigurationError([fault], option)


def check_port(host: str, port: int, option: str) -> None:
    """Look whether something could listen there; nothing does afterwards.

    Args:
        host: an IPv4 address of this machine.
        port: 0 is always free.
        option: the option that names the port.

    Raises:
        ConfigurationError: somebody listens there, or this user may not.
    """
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        raise refused_port(host, port, error, option) from None
