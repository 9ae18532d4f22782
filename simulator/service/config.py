"""The settings that the service starts with."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent.errors import ConfigurationError
from agent.wire.limits import QUOTA_PER_MINUTE
from agent.wire.secret import Secret
from simulator.service.clock import ServiceClock, SystemClock
from simulator.service.profiles.model import ServerProfile
from simulator.service.request_log.settings import KEEP_DEFAULT, KEEP_MAX
from simulator.service.scripted.script import MakeSignals

_TOKEN: Final = re.compile(r"[!-~]{16,256}", re.ASCII)
_KEY: Final = re.compile(r"[!-~]{1,256}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """The service's settings.

    Attributes:
        host: address to listen on.
        port: port to listen on; 0 takes any free one.
        data_dir: where the SQLite file lives; None takes a temporary folder, removed at the end.
        seed_file: YAML of products, devices and users that are there from the start.
        api_key: the first account's public key, begins with ``mk_``; made on the first start when None.
        secret_key: its secret, begins with ``msk_``; given together with ``api_key`` or not at all.
        rate_limit: requests of one key in a calendar minute; 0 = no limit.
        validate_commands: check each ``command_payload`` against its product's vocabulary.
        control: serve ``/_emulator/...``, to loopback callers only.
        control_token: what these must send in ``X-Emulator-Token``; None asks for none.
        log_level: least level that is logged.
        clock: where the time comes from.
        seed: makes ids repeatable; None for ids that never repeat.
        profile: how the first account is answered; None keeps what is stored, the complete service at first.
        keep_requests: how many requests and answers the request log keeps; 0 = none.
        make_signals: makes what scripted devices read; None leaves the service without signals.
        snapshot: a snapshot to begin with, where nothing is stored yet.
        snapshot_on_exit: where to leave one at the end, in place of one that is there.
        snapshots_dir: folder of the snapshots with names; None takes one in ``data_dir``, else a temporary one.
    """

    host: str = "127.0.0.1"
    port: int = 0
    data_dir: Path | None = None
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
    profile: ServerProfile | None = None
    keep_requests: int = KEEP_DEFAULT
    make_signals: MakeSignals | None = None
    snapshot: Path | None = None
    snapshot_on_exit: Path | None = None
    snapshots_dir: Path | None = None

    def __post_init__(self) -> None:
        faults = list(self._faults())
        if self.control_token is not None and not _TOKEN.fullmatch(self.control_token.reveal()):
            faults.append("control_token must be 16 to 256 visible ASCII characters: openssl rand -hex 16 makes one")
        if not 0 <= self.keep_requests <= KEEP_MAX:
            faults.append(f"keep_requests must lie in 0 (no request log) to {KEEP_MAX:,} requests")
        if faults:
            raise ConfigurationError(faults, "service")

    def _faults(self) -> list[str]:
        found = fault_of_keys(self.api_key, self.secret_key.reveal() if self.secret_key else None)
        faults = [f"{field} {issue}" for field, issue in found]
        if self.rate_limit < 0:
            faults.append("rate_limit must be 0 (no limit) or more requests per minute")
        if self.snapshot_on_exit is not None and not self.snapshot_on_exit.parent.is_dir():
            faults.append(f"snapshot_on_exit: there is no folder {self.snapshot_on_exit.parent}: make it first")
        elif self.snapshot_on_exit is not None and self.snapshot_on_exit.is_dir():
            faults.append(f"snapshot_on_exit: {self.snapshot_on_exit} is a folder: give the name of a file")
        if not 0 <= self.port <= 65535:
            faults.append("port must lie in 0 to 65535; 0 takes any free one")
        return faults


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
