"""The machines that may be loaded: this one, listed ones, and any other only with an explicit consent.

One mistyped address, and a load generator harms somebody. So a target is allowed when every address that its name
resolves to is this machine's own (127.0.0.0/8, ::1), or when it stands in the file of targets with the caps that its
owner set, or when the person who starts the run says ``--i-own-this-target``.

Source: RFC 5735 and RFC 4291 (loopback addresses).
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.errors import ConfigurationError
from agent.wire.base import describe_faults

UNLISTED_DEVICES_MAX: Final = 10_000
UNLISTED_REQUESTS_PER_S_MAX: Final = 2_000.0
"""Caps where somebody said ``--i-own-this-target`` and listed no others: enough for a staging server."""

Resolve = Callable[[str], Sequence[str]]


class ListedTarget(BaseModel):
    """One target in the file.

    Attributes:
        host: the name or address as scenarios write it, without a port.
        max_devices: most devices that a run may have there.
        max_requests_per_s: most requests per second that a run may plan there.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: Annotated[str, Field(min_length=1)]
    max_devices: Annotated[int, Field(ge=1)] = UNLISTED_DEVICES_MAX
    max_requests_per_s: Annotated[float, Field(gt=0)] = UNLISTED_REQUESTS_PER_S_MAX


class _TargetList(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    targets: tuple[ListedTarget, ...] = ()


@dataclass(frozen=True, slots=True)
class Permission:
    """That a target may be loaded, and how far; None is no cap.

    Attributes:
        why: for the report: ``loopback``, ``listed`` or ``owner's word``.
    """

    why: str
    max_devices: int | None = None
    max_requests_per_s: float | None = None

    def check(self, *, devices: int, requests_per_s: float) -> None:
        """Return when a run of this size is within the caps.

        Raises:
            ConfigurationError: it is not; the text has the numbers.
        """
        faults = []
        if self.max_devices is not None and devices > self.max_devices:
            faults.append(f"{devices:,} devices are more than the {self.max_devices:,} that this target allows")
        if self.max_requests_per_s is not None and requests_per_s > self.max_requests_per_s:
            most = f"{self.max_requests_per_s:,.0f}"
            faults.append(f"{requests_per_s:,.0f} requests/s are more than the {most} that this target allows")
        if faults:
            raise ConfigurationError(
                [f"{fault}: raise its caps in the file of targets (--targets), or plan less" for fault in faults],
                "target",
            )


def read_targets(path: Path) -> tuple[ListedTarget, ...]:
    """The file of targets: YAML with a list ``targets`` of ``{host, max_devices, max_requests_per_s}``.

    Raises:
        ConfigurationError: it cannot be read, or is no such list.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        return _TargetList.model_validate(document if document is not None else {}).targets
    except OSError as error:
        raise ConfigurationError([f"cannot be read: {error.strerror}"], str(path)) from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError([f"is not YAML: {' '.join(str(error).split())}"], str(path)) from None
    except ValidationError as error:
        raise ConfigurationError([describe_faults(error)], str(path)) from None


def permit(address: str, listed: Sequence[ListedTarget], *, owned: bool, resolve: Resolve | None = None) -> Permission:
    """Whether a run may load this address.

    Args:
        address: ``http://host:port``, ``mqtt://host:port`` or ``host``.
        listed: from the file of targets.
        owned: the person said ``--i-own-this-target``.
        resolve: name -> addresses; the system's by default.

    Raises:
        ConfigurationError: it may not; the text says what to do.
    """
    host = _host_of(address)
    for target in listed:
        if target.host.lower() == host.lower():
            return Permission("listed", target.max_devices, target.max_requests_per_s)
    if _is_loopback(host, resolve or _system_addresses):
        return Permission("loopback")
    if owned:
        return Permission("owner's word", UNLISTED_DEVICES_MAX, UNLISTED_REQUESTS_PER_S_MAX)
    fix = (
        f"{host} is not this machine: a run would load somebody's server. If it is yours, say --i-own-this-target "
        f"(at most {UNLISTED_DEVICES_MAX:,} devices, {UNLISTED_REQUESTS_PER_S_MAX:,.0f} requests/s), or list it "
        "with caps of its own in the file given as --targets"
    )
    raise ConfigurationError([fix], "target")


def is_here(address: str) -> bool:
    """Whether the target is on this machine.

    Raises:
        ConfigurationError: the address names no host, or one that cannot be resolved.
    """
    return _is_loopback(_host_of(address), _system_addresses)


def _host_of(address: str) -> str:
    host = urlsplit(address if "//" in address else f"//{address}").hostname
    if not host:
        raise ConfigurationError([f"{address!r} names no host: write it as http://host:port"], "target")
    return host


def _is_loopback(host: str, resolve: Resolve) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        addresses = resolve(host)
    return bool(addresses) and all(ipaddress.ip_address(found.split("%")[0]).is_loopback for found in addresses)


def _system_addresses(host: str) -> Sequence[str]:
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(host, None)]
    except OSError as error:
        raise ConfigurationError([f"{host} cannot be resolved: {error.strerror or error}"], "target") from None
