"""The target: whether it may be loaded, its address and key pairs, its extensions, and the local service as one.

One mistyped address, and a load generator harms somebody. So a target is allowed when every address that its name
resolves to is this machine's own (127.0.0.0/8, ::1: RFC 5735, RFC 4291), or when the person who starts the run says
``--i-own-this-target``.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from agent.errors import ConfigurationError
from agent.wire.secret import BearerToken, Secret
from agent.wire.server import Dialect
from simulator.children import ChildProcess, Children, program_path
from simulator.credentials import read_secret_file
from simulator.fleet.engine.addresses import read_origin
from simulator.fleet.scenario.targets import AnyTarget
from simulator.fleet.settings import KeyPairFile
from simulator.keys import Keys
from simulator.whole_files import write_whole
from simulator.wire.client import ServiceClient

_LOCAL_FILE: Final = "standing.json"
_BROKER: Final = re.compile(r"mqtts?://(\[[0-9a-fA-F:]+\]|[^\s/:@?#]+)(:\d{1,5})?/?", re.ASCII)
_PATHS: Final = ("gateway_config", "ca_file")
_READY_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """The options of the command line; everything may be missing.

    Attributes:
        base_url: address of the service.
        api_key, secret_key_file: one key pair.
        up: the folder that ``fleet-simulator up --data`` was given.
        ca_file: the authorities that alone are trusted over TLS.
        gateway_url, gateway_config, broker_url: as in :class:`Target`.
    """

    base_url: str | None = None
    api_key: str | None = None
    secret_key_file: Path | None = None
    up: Path | None = None
    ca_file: Path | None = None
    gateway_url: str | None = None
    gateway_config: Path | None = None
    broker_url: str | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """How to reach everything that a run needs.

    Attributes:
        keys: at least one pair; several share the load of a quota.
        gateway_url: where devices speak HTTP to the gateway; None without one.
        gateway_config: of a gateway on this machine, whose tokens may be made here; None without one.
        broker_url: where devices speak MQTT, ``mqtt://host:port`` or ``mqtts://host:port``; None without one.
        broker: its name, where it is known; the embedded one carries a few hundred devices.
        ca_file: the authorities that alone are trusted over TLS; None trusts the system's.
    """

    base_url: str
    keys: tuple[Keys, ...]
    gateway_url: str | None = None
    gateway_config: Path | None = None
    broker_url: str | None = None
    broker: str | None = None
    ca_file: Path | None = None

    @property
    def addresses(self) -> frozenset[str]:
        """The addresses of everything that a run may load."""
        return frozenset(filter(None, (self.base_url, self.gateway_url, self.broker_url)))

    @property
    def key_files(self) -> tuple[KeyPairFile, ...]:
        """The keys as they travel to a worker."""
        return tuple(KeyPairFile(pair.api_key, pair.secret_path) for pair in self.keys if pair.secret_path is not None)


def read_keys(files: Iterable[KeyPairFile]) -> tuple[Keys, ...]:
    """The pairs with their secrets.

    Raises:
        ConfigurationError: a file cannot be read.
    """
    name = "the secret key's file"
    return tuple(
        Keys(each.api_key, read_secret_file(each.secret_key_file, name), each.secret_key_file) for each in files
    )


def find_target(options: TargetOptions, settings: AnyTarget | None = None, folder: Path = Path()) -> Target:
    """The address and credentials of the target; the command line goes before the scenario.

    Args:
        options: from the command line.
        settings: of the scenario; None without one.
        folder: of the scenario; relative paths in it start here.

    Raises:
        ConfigurationError: something is missing or cannot be read; every fault with its fix.
    """
    if options.up is not None:
        if options != TargetOptions(up=options.up):
            fix = "--up knows the addresses and the keys: leave out the other options of the target"
            raise ConfigurationError([fix], "target")
        return read_local(options.up)
    files: list[KeyPairFile] = []
    address, ca_file, faults = options.base_url, options.ca_file, list[str]()
    if settings is not None:
        address = address or settings.base_url
        ca_file = ca_file or (settings.ca_file and (folder / settings.ca_file).absolute())
        files = [replace(pair, secret_key_file=folder / pair.secret_key_file) for pair in settings.keys]
    if options.api_key and options.secret_key_file:
        files = [KeyPairFile(options.api_key, options.secret_key_file)]
    elif options.api_key or options.secret_key_file:
        missing = "--secret-key-file" if options.api_key else "--api-key"
        faults.append(f"{missing} is missing: a key pair has both parts")
    elif not files:
        faults.append(
            "no keys: give --api-key and --secret-key-file, or --up DIR; 'run' takes --local and target.keys, too"
        )
    if not address:
        faults.append("no target: give --base-url, or --up DIR of 'fleet-simulator up --data DIR'")
    if options.broker_url and not _BROKER.fullmatch(options.broker_url):
        faults.append(f"--broker {options.broker_url!r}: write it as mqtt://host:port, or with TLS mqtts://host:port")
    pairs: tuple[Keys, ...] = ()
    try:
        for url in filter(None, (address, options.gateway_url)):
            read_origin(url, ca_file)
        pairs = read_keys(files)
    except ConfigurationError as error:
        faults += error.faults
    if faults or not address:
        raise ConfigurationError(faults, "target")
    gateway = options.gateway_url, options.gateway_config, options.broker_url
    return Target(address.rstrip("/"), pairs, *gateway, ca_file=ca_file)


def find_offers(target: Target, dialect: Dialect | None = None) -> frozenset[str]:
    """The extensions of the service; none of a plain server, which is sent nothing beyond the specification.

    Args:
        target: to the service.
        dialect: what the scenario says of it.

    Raises:
        ServiceError: the service cannot be reached, is overloaded, or does not take the keys.
    """
    if dialect is not None and dialect.extensions is not None:
        return dialect.extensions
    with ServiceClient(target.base_url, target.keys[0], ca_file=target.ca_file) as client:
        return client.offers()


def find_gateway_offers(target: Target, token: Secret) -> frozenset[str]:
    """The extensions of a gateway, which is all that the devices behind it talk to.

    Args:
        target: with the gateway.
        token: of any of its devices.

    Raises:
        ServiceError: the gateway cannot be reached, is overloaded, or does not take the token.
    """
    with ServiceClient(target.gateway_url or "", BearerToken(token), ca_file=target.ca_file) as client:
        return client.offers()


# --- may it be loaded? ------------------------------------------------------------------------------------------------


def permit(address: str, *, owned: bool) -> None:
    """Return when a run may load this address.

    Args:
        address: ``http://host:port`` or ``mqtt://host:port``.
        owned: the person said ``--i-own-this-target``.

    Raises:
        ConfigurationError: it may not; the text says what to do.
    """
    if not owned and not is_here(address):
        fix = "a run would load somebody's server. If it is yours, say --i-own-this-target"
        raise ConfigurationError([f"{urlsplit(address).hostname} is not this machine: {fix}"], "target")


def is_here(address: str) -> bool:
    """Whether the target is on this machine.

    Raises:
        ConfigurationError: its host cannot be resolved.
    """
    host = urlsplit(address).hostname
    try:
        found = socket.getaddrinfo(host, None)
    except OSError as error:
        raise ConfigurationError([f"{host} cannot be resolved: {error.strerror or error}"], "target") from None
    return all(ipaddress.ip_address(str(each[4][0]).split("%")[0]).is_loopback for each in found)


# --- the local service ------------------------------------------------------------------------------------------------


def write_local(folder: Path, target: Target) -> None:
    """Leave a file in the data folder of ``fleet-simulator up`` by which other programs find all that runs there.

    It names addresses and where the key is, never a secret itself, and is there as long as the service runs.
    """
    (pair,) = target.key_files
    values = {
        "base_url": target.base_url,
        "api_key": pair.api_key,
        "secret_key_file": str(pair.secret_key_file.absolute()),
        "gateway_url": target.gateway_url,
        "gateway_config": target.gateway_config and str(target.gateway_config.absolute()),
        "broker_url": target.broker_url,
        "broker": target.broker,
        "ca_file": target.ca_file and str(target.ca_file.absolute()),
    }
    write_whole(folder / _LOCAL_FILE, json.dumps(values, indent=2) + "\n")


def remove_local(folder: Path) -> None:
    """Take the file away: nothing runs there any more."""
    (folder / _LOCAL_FILE).unlink(missing_ok=True)


def read_local(folder: Path) -> Target:
    """What runs in this folder.

    Raises:
        ConfigurationError: nothing does, and the text says how to start it; or its key cannot be read.
    """
    path = folder / _LOCAL_FILE
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        pair = KeyPairFile(values.pop("api_key"), Path(values.pop("secret_key_file")))
        paths: dict[str, Any] = {name: value and Path(value) for name in _PATHS for value in [values.pop(name)]}
        return Target(keys=read_keys([pair]), **paths, **values)
    except FileNotFoundError:
        fix = f"nothing stands there: start it with 'fleet-simulator up --data {folder} --rate-limit 0'"
        raise ConfigurationError([fix], str(folder)) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError([f"cannot be read: {error!r}; start 'fleet-simulator up' again"], str(path)) from None


@contextlib.contextmanager
def running_local(folder: Path, *, gateway: bool) -> Iterator[Target]:
    """Start ``fleet-simulator up`` and end it after the block.

    Args:
        folder: for its data and its log; made when it is missing.
        gateway: with gateway and broker.

    Raises:
        NotStarted: it did not start; the text shows the end of its log.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with Children() as children:
        # What it greets with are keys and a token, which no file is to hold that goes along with a run's reports.
        child = children.add(ChildProcess("fleet-simulator up", folder / "up.log", Path(os.devnull)))
        program, ports = (
            str(program_path("fleet-simulator")),
            ["--port=0", "--gateway-port=0" if gateway else "--no-gateway"],
        )
        child.start([program, "up", f"--data={folder}", "--no-console", "--rate-limit=0", *ports])
        child.wait_until((folder / _LOCAL_FILE).is_file, "the service stood", _READY_S)
        yield read_local(folder)
