"""Telling the service manager how the agent is: datagrams to the socket that it names in the environment.

Source: sd_notify(3), sd_watchdog_enabled(3). No library: the protocol is one datagram of ``NAME=value`` lines.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from agent.ports import Notifier


_log = logging.getLogger(__name__)

_STATUS_CHARACTERS: Final = 512
_USEC_DIGITS: Final = 18


class NullNotifier:
    """The :class:`~agent.ports.Notifier` when no service manager listens."""

    def ready(self) -> None:
        """The agent does its job from now on. See :class:`agent.ports.Notifier`."""

    def status(self, text: str) -> None:
        """One line for a person. See :class:`agent.ports.Notifier`."""

    def alive(self) -> None:
        """Feed the watchdog. See :class:`agent.ports.Notifier`."""

    def stopping(self) -> None:
        """Stop has begun. See :class:`agent.ports.Notifier`."""

    def reloading(self) -> None:
        """A configuration is being taken over; :meth:`ready` says that it is done."""

    @property
    def watchdog_interval_s(self) -> float | None:
        """How often :meth:`alive` must come; None without a watchdog. See :class:`agent.ports.Notifier`."""
        return None


class SdNotifier:
    """The :class:`~agent.ports.Notifier` of systemd. Thread-safe; a datagram that cannot be sent is lost.

    Args:
        address: of ``$NOTIFY_SOCKET``: a path, or ``@`` and an abstract name.
        watchdog_s: within which time systemd wants to hear from us, seconds; None when it does not watch.

    Raises:
        ValueError: the address is neither of the two.
    """

    def __init__(self, address: str, watchdog_s: float | None = None) -> None:
        if address[:1] not in {"@", "/"} or len(address) < 2:
            raise ValueError(f"NOTIFY_SOCKET {address!r} is neither a path nor an abstract name")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._watchdog_s = watchdog_s
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | getattr(socket, "SOCK_CLOEXEC", 0))
        # A service manager that does not read must not stop the agent.
        self._socket.setblocking(False)

    def ready(self) -> None:
        """The agent does its job from now on. See :class:`agent.ports.Notifier`."""
        self._send("READY=1")

    def status(self, text: str) -> None:
        """One line for a person. See :class:`agent.ports.Notifier`; cut to one line."""
        self._send(f"STATUS={' '.join(text.split())[:_STATUS_CHARACTERS]}")

    def alive(self) -> None:
        """Feed the watchdog. See :class:`agent.ports.Notifier`."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Stop has begun. See :class:`agent.ports.Notifier`."""
        self._send("STOPPING=1")

    def reloading(self) -> None:
        """A configuration is being taken over; :meth:`ready` says that it is done.

        See :class:`agent.ports.Notifier`; with the time, by which systemd knows an old message (sd_notify(3)).
        """
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    @property
    def watchdog_interval_s(self) -> float | None:
        """How often :meth:`alive` must come; None without a watchdog.

        See :class:`agent.ports.Notifier`: half of what systemd allows, as it recommends.
        """
        return None if self._watchdog_s is None else self._watchdog_s / 2

    def close(self) -> None:
        """Close the notification socket."""
        self._socket.close()

    def _send(self, text: str) -> None:
        try:
            self._socket.sendto(text.encode(), self._address)
        except OSError as error:
            _log.debug("%s could not be sent to the service manager: %s", text, error)


def make_notifier(environ: Mapping[str, str], process_id: int | None = None) -> Notifier:
    """The notifier that the environment asks for.

    Args:
        environ: ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID`` count.
        process_id: who we are; this process by default. A watchdog that is meant for another process is not ours.
    """
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return NullNotifier()
    own_id = os.getpid() if process_id is None else process_id
    try:
        return SdNotifier(address, _watchdog_s(environ, own_id))
    except (ValueError, OSError) as error:
        _log.warning("nothing is sent to the service manager: %s", error)
        return NullNotifier()


def _watchdog_s(environ: Mapping[str, str], own_id: int) -> float | None:
    wanted = environ.get("WATCHDOG_USEC", "")
    meant_for = environ.get("WATCHDOG_PID", "")
    is_number = wanted.isascii() and wanted.isdigit() and len(wanted) <= _USEC_DIGITS
    if not is_number or int(wanted) == 0 or (meant_for and meant_for != str(own_id)):
        return None
    return int(wanted) / 1e6
