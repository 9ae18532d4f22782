"""The settings that the service starts with."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from agent.errors import ConfigurationError
from agent.wire.limits import QUOTA_PER_MINUTE
from agent.wire.secret import Secret
from simulator.service.client_address import parse_networks
from simulator.service.clock import ServiceClock, SystemClock
from simulator.service.profiles.model import ServerProfile
from simulator.service.request_log.settings import KEEP_DEFAULT, KEEP_MAX, AccessLogStyle
from simulator.service.scripted.script import MakeSignals

REFRESH_GRACE_S: Final = 300
"""The longest time that a rotated refresh token may stay good: a copy of it is good for as long."""
_TOKEN: Final = re.compile(r"[!-~]{16,256}", re.ASCII)
_KEY: Final = re.compile(r"[!-~]{1,256}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """The service's settings.

    Attributes:
        host: address to listen on.
        port: port to listen on; 0 takes any free one.
        data_dir: where the SQLite file lives; None takes a temporary folder, removed at the end.
        database: URL of a PostgreSQL database, used instead of ``data_dir``.
        seed_file: YAML of products, devices and users that are there from the start.
        api_key: the first account's public key, begins with ``mk_``; made on the first start when None.
        secret_key: its secret, begins with ``msk_``; given together with ``api_key`` or not at all.
        rate_limit: requests of one key in a calendar minute; 0 = no limit.
        validate_commands: check each ``command_payload`` against its product's vocabulary.
        control: serve ``/_emulator/...``, to loopback callers only.
        control_token: what these must send in ``X-Emulator-Token``; made where a proxy may carry requests of others
            here (``public_url`` or ``trusted_proxies``), else None asks for none.
        log_level: least level that is logged.
        clock: where the time comes from.
        seed: makes ids repeatable; None for ids that never repeat.
        public_url: what callers reach the service under, for partners; where it listens when None.
        trusted_proxies: addresses or networks whose ``X-Forwarded-For`` names the caller.
        refresh_grace_s: for so many seconds a rotated refresh token is good once more; 0 = never.
        profile: how the first account is answered; None keeps what is stored, the complete service at first.
        keep_requests: how many requests and answers the request log keeps; 0 = none.
        access_log: whether and how each request is a line on standard error; at level info and below.
        keep_readings: the newest so many are kept, by arrival; None for all.
        keep_commands: the newest so many ended commands are kept; open ones always are. None for all.
        make_signals: makes what scripted devices read; None leaves the service without signals.
        snapshot: a snapshot to begin with, where nothing is stored yet.
        snapshot_on_exit: where to leave one at the end, in place of one that is there.
        snapshots_dir: folder of the snapshots with names; None takes one in ``data_dir``, else a temporary one.
        tls_certificate: PEM file with the service's certificate and those above it; None serves plain HTTP.
        tls_key: PEM file with its key; None when it is in the same file.
    """

    host: str = "127.0.0.1"
    port: int = 0
    data_dir: Path | None = None
    database: str | None = field(default=None, repr=False)  # it may hold a password
    seed_file: Path | None = None
    api_key: str | None = None
    secret_key: Secret | None = None
    rate_limit: int = QUOTA_PER_MINUTE
    validate_commands: bool = False
    control: bool = True
    control_token: Secret | None = None
    log_level: str = "info"
    clock: ServiceClock = field(default_factory=SystemClock)
    seed: int | None = None
    public_url: str | None = None
    refresh_grace_s: int = 0
    trusted_proxies: tuple[str, ...] = ()
    profile: ServerProfile | None = None
    keep_requests: int = KEEP_DEFAULT
    access_log: AccessLogStyle = "off"
    keep_readings: int | None = None
    keep_commands: int | None = None
    make_signals: MakeSignals | None = None
    snapshot: Path | None = None
    snapshot_on_exit: Path | None = None
    snapshots_dir: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None

    def __post_init__(self) -> None:
        faults = list(self._faults())
        if self.control_token is not None and not _TOKEN.fullmatch(self.control_token.reveal()):
            faults.append("control_token must be 16 to 256 visible ASCII characters: openssl rand -hex 16 makes one")
        kept = {"keep_readings": self.keep_readings, "keep_commands": self.keep_commands}
        few = [name for name, keep in kept.items() if keep is not None and keep < 1]
        faults += [f"{name} must be 1 or more; leave it out to keep all" for name in few]
        if not 0 <= self.keep_requests <= KEEP_MAX:
            faults.append(f"keep_requests must lie in 0 (no request log) to {KEEP_MAX:,} requests")
        if faults:
            raise ConfigurationError(faults, "service")

    @property
    def is_https(self) -> bool:
        """Whether others reach the service by https."""
        return self.public_url.startswith("https:") if self.public_url else self.tls_certificate is not None

    def _faults(self) -> list[str]:
        found = fault_of_keys(self.api_key, self.secret_key.reveal() if self.secret_key else None)
        faults = [f"{field} {issue}" for field, issue in found]
        if self.database is not None and self.data_dir is not None:
            faults.append("give --data (SQLite) or --database (PostgreSQL), not both")
        if self.rate_limit < 0:
            faults.append("rate_limit must be 0 (no limit) or more requests per minute")
        if self.public_url is not None and not _is_public_url(self.public_url):
            faults.append("public_url must be such as https://devices.example.com: no query, no / at the end")
        if not 0 <= self.refresh_grace_s <= REFRESH_GRACE_S:
            faults.append(f"refresh_grace_s must lie in 0 to {REFRESH_GRACE_S} seconds")
        try:
            parse_networks(self.trusted_proxies)
        except ValueError as exc:
            faults.append(f"trusted_proxies: {exc}; give addresses or networks such as 10.0.0.0/8")
        if self.snapshot_on_exit is not None and not self.snapshot_on_exit.parent.is_dir():
            faults.append(f"snapshot_on_exit: there is no folder {self.snapshot_on_exit.parent}: make it first")
        elif self.snapshot_on_exit is not None and self.snapshot_on_exit.is_dir():
            faults.append(f"snapshot_on_exit: {self.snapshot_on_exit} is a folder: give the name of a file")
        if self.tls_key is not None and self.tls_certificate is None:
            faults.append("--tls-key needs --tls-certificate beside it")
        if not 0 <= self.port <= 65535:
            faults.append("port must lie in 0 to 65535; 0 takes any free one")
        return faults


def _is_public_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    plain = _KEY.fullmatch(url) is not None and not url.endswith("/") and "?" not in url and "#" not in url
    return plain and parts.scheme in {"http", "https"} and bool(parts.hostname) and "@" not in parts.netloc


def fault_of_keys(api_key: str | None, secret_key: str | None) -> list[tuple[str, str]]:
    """What is wrong with a key pair that is given, as (field, issue); nothing where neither part is."""
    faults = []
    if (api_key is None) != (not secret_key):
        missing = "api_key" if api_key is None else "secret_key"
        faults.append((missing, "is missing: the two belong together; give both, or neither to have them made"))
    if api_key is not None and not (api_key.startswith("mk_") and _KEY.fullmatch(api_key)):
        faults.append(("api_key", "must begin with 'mk_' and have only visible ASCII characters"))
    if secret_key and not (secret_key.startswith("msk_") and _KEY.fullmatch(secret_key)):
        faults.append(("secret_key", "must begin with 'msk_' and have only visible ASCII characters"))
    return faults
