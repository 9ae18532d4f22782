"""The target: from options and a scenario to addresses, key pairs and extensions that can be used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from agent.errors import ConfigurationError
from agent.wire.network import trust_store
from agent.wire.secret import BearerToken, KeyPair, Secret
from agent.wire.server import Dialect
from simulator.announced import ask_offers
from simulator.credentials import read_secret_file
from simulator.fleet.target.local import LocalService, read_local
from simulator.keys import Keys
from simulator.wire.client import ServiceClient

LOCAL_BROKER: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """The options of the command line; everything may be missing.

    Attributes:
        base_url: address of the service.
        api_key, secret_key_file: one key pair.
        up: the folder that ``fleet-simulator up --data`` was given.
        ca_file: the authorities that alone are trusted over TLS.
    """

    base_url: str | None = None
    api_key: str | None = None
    secret_key_file: Path | None = None
    up: Path | None = None
    ca_file: Path | None = None


@dataclass(frozen=True, slots=True)
class KeyPairFile:
    """A key pair as a scenario names it, and as it travels to a worker: the secret stays in its file."""

    api_key: str
    secret_key_file: Path


@dataclass(frozen=True, slots=True)
class Target:
    """How to reach everything that a run needs.

    Attributes:
        keys: at least one pair; several share the load of a quota.
        gateway_url: where devices speak HTTP to the gateway; None without one.
        gateway_folder: a gateway on this machine whose tokens may be made here; None for any other.
        broker_host, broker_port: where devices speak MQTT; None without one.
        broker: its name, where it is known.
        ca_file: the authorities that alone are trusted at ``base_url``; None trusts the system's.
    """

    base_url: str
    keys: tuple[Keys, ...]
    gateway_url: str | None = None
    gateway_folder: Path | None = None
    broker_host: str | None = None
    broker_port: int | None = None
    broker: str | None = None
    ca_file: Path | None = None

    @property
    def addresses(self) -> frozenset[str]:
        """The addresses of everything that a run may load."""
        broker = f"mqtt://{self.broker_host}" if self.broker_host else None
        return frozenset(filter(None, (self.base_url, self.gateway_url, broker)))

    @property
    def key_files(self) -> tuple[KeyPairFile, ...]:
        """The keys as they travel."""
        return tuple(KeyPairFile(pair.api_key, pair.secret_path) for pair in self.keys if pair.secret_path is not None)


def read_keys(files: Sequence[KeyPairFile]) -> tuple[Keys, ...]:
    """The pairs with their secrets.

    Raises:
        ConfigurationError: files that cannot be read; all of them.
    """
    faults: list[str] = []
    pairs = tuple(_pair(file, faults) for file in files)
    if faults:
        raise ConfigurationError(faults, "target")
    return pairs


def find_target(
    options: TargetOptions,
    base_url: str | None = None,
    keys: Sequence[KeyPairFile] | None = None,
    ca_file: Path | None = None,
) -> Target:
    """The address and credentials of the target; the command line goes before the scenario.

    Args:
        options: from the command line.
        base_url: from the scenario.
        keys: from the scenario; None where there is no scenario.
        ca_file: from the scenario: the authorities that alone are trusted.

    Raises:
        ConfigurationError: something is missing or cannot be read; every fault with its fix.
    """
    if options.up is not None:
        if options.base_url or options.api_key or options.secret_key_file or options.ca_file:
            fix = "--up knows address and keys: leave out --base-url, --api-key, --secret-key-file and --ca-file"
            raise ConfigurationError([fix], "target")
        return target_of(read_local(options.up))
    address = options.base_url or base_url
    faults = []
    if not address:
        local = "" if keys is None else ", or --local"
        faults.append(f"no target: give --base-url, or --up DIR of 'fleet-simulator up --data DIR'{local}")
    else:
        faults += faults_of_address(address)
    pairs: list[Keys] = []
    if options.api_key or options.secret_key_file:
        if not options.api_key or not options.secret_key_file:
            missing = "--api-key" if not options.api_key else "--secret-key-file"
            faults.append(f"{missing} is missing: a key pair has both parts")
        else:
            pairs = [_pair(KeyPairFile(options.api_key, options.secret_key_file), faults)]
    else:
        pairs = [_pair(pair, faults) for pair in keys or ()]
        if not pairs:
            listed = "" if keys is None else ", or target.keys in the scenario"
            faults.append(f"no keys: give --api-key and --secret-key-file{listed}")
    if ca_file is not None and options.ca_file is None:
        faults += _faults_of(ca_file)
    if faults or not address:
        raise ConfigurationError(faults, "target")
    trusted = options.ca_file or (None if ca_file is None else ca_file.absolute())
    return Target(address.rstrip("/"), tuple(pairs), ca_file=trusted)


def faults_of_address(address: str) -> list[str]:
    """What is wrong with a base URL, a sentence each."""
    try:
        url = urlsplit(address)
        is_one = url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
    except ValueError:
        is_one = False
    return [] if is_one else [f"--base-url {address!r}: write it as http://host:port"]


def target_of(standing: LocalService) -> Target:
    """The way into a service that stands on this machine.

    Raises:
        ConfigurationError: its keys cannot be read.
    """
    faults: list[str] = []
    folder = standing.key_folder
    try:
        api_key = (folder / "api_key").read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([f"cannot be read: {error}"], str(folder / "api_key")) from None
    pair = _pair(KeyPairFile(api_key, folder / "secret_key"), faults)
    if faults:
        raise ConfigurationError(faults, "target")
    return Target(
        standing.base_url,
        (pair,),
        standing.gateway_url,
        standing.gateway_folder,
        LOCAL_BROKER if standing.broker_port else None,
        standing.broker_port,
        standing.broker,
    )


def _faults_of(ca_file: Path) -> list[str]:
    try:
        trust_store(ca_file)
    except OSError as error:
        return [f"target.tls.ca_file {ca_file}: write a PEM file with certificates ({error})"]
    return []


def _pair(pair: KeyPairFile, faults: list[str]) -> Keys:
    try:
        return Keys(pair.api_key, read_secret_file(pair.secret_key_file, "the secret key's file"), pair.secret_key_file)
    except ConfigurationError as error:
        faults += error.faults
        return Keys(pair.api_key, Secret(""))


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
    keys = target.keys[0]
    with ServiceClient(target.base_url, KeyPair(keys.api_key, keys.secret_key), ca_file=target.ca_file) as client:
        return ask_offers(client)


def find_gateway_offers(gateway_url: str, token: Secret) -> frozenset[str]:
    """The extensions of a gateway, which is all that the devices behind it talk to.

    Args:
        gateway_url: where it serves devices over HTTP.
        token: of any of its devices.

    Raises:
        ServiceError: the gateway cannot be reached, is overloaded, or does not take the token.
    """
    with ServiceClient(gateway_url, BearerToken(token)) as client:
        return ask_offers(client)
