"""``device-gateway doctor``: the gateway's unit and key files, and what ``gateway check`` finds out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, Unpack

from agent.config.model import AuthConfig
from agent.doctor.files import KEY_FILES
from agent.doctor.findings import Check, CheckStatus, Finding, Named, cause_and_fix, failed, in_parts, ok, skipped
from agent.doctor.installed import InstalledProgram, Options
from agent.doctor.quick_check import check_state_dir
from agent.doctor.units import UNIT_CHECKS
from agent.errors import ConfigurationError
from gateway.checks import check_broker, check_http, check_service, check_tokens
from gateway.config import GatewayConfig, LoadedGateway


class GatewaySubject(InstalledProgram):
    """One installed gateway, as the doctor examines it.

    Args:
        load: gives the configuration, without a look at the key files, or raises
            :class:`~agent.errors.ConfigurationError`.
        environ: of this process.
        options: those of :class:`~agent.doctor.installed.InstalledProgram`.
    """

    name = "device-gateway"

    def __init__(
        self, load: Callable[[], LoadedGateway], environ: Mapping[str, str], **options: Unpack[Options]
    ) -> None:
        super().__init__(environ, **options)
        self._load = load

    @cached_property
    def loaded(self) -> LoadedGateway:
        """The configuration, and where it came from.

        Raises:
            ConfigurationError: every fault of it.
        """
        return self._load()

    @property
    def config(self) -> GatewayConfig:
        """The configuration; only for checks that come after ``configuration``."""
        return self.loaded.config

    @property
    def auth(self) -> AuthConfig:
        """Which files hold the key pair."""
        return self.config.auth.files

    @property
    def further_keys(self) -> tuple[Path, ...]:
        """The password at the broker and the keys of the certificates."""
        mqtt, http = self.config.mqtt, self.config.http
        return tuple(path for path in (mqtt.password_file, mqtt.key_file, http.private_key) if path is not None)


def _configuration(subject: GatewaySubject) -> Finding:
    try:
        path = subject.loaded.path
    except ConfigurationError as error:
        return failed(error.source, *cause_and_fix("; ".join(error.faults)))
    return ok(f"{path or 'the environment'} is whole and consistent")


def _state_dir(subject: GatewaySubject) -> Finding:
    state_dir = subject.config.state_dir
    if state_dir.exists() and subject.user_id not in {0, state_dir.stat().st_uid}:
        return skipped(f"{state_dir} is another user's: run the doctor as root")
    return _judged([check_state_dir(state_dir, "gateway")], "")


def _devices(subject: GatewaySubject) -> Finding:
    return _judged([check_tokens(subject.config)], "")


def _http(subject: GatewaySubject) -> Finding:
    return _judged(check_http(subject.config), "no device is served over HTTP")


def _mqtt(subject: GatewaySubject) -> Finding:
    return _judged(check_broker(subject.config), "no device is served over MQTT")


def _service(subject: GatewaySubject) -> Finding:
    return _judged([check_service(subject.config, subject.credentials)], "")


def _judged(found: Sequence[Named], without: str) -> Finding:
    """The findings of ``gateway check`` as one finding of ``doctor``: cause and fix in members of their own."""
    if not found:
        return skipped(without)
    name, worst = next((each for each in found if each[1].verdict is not CheckStatus.OK), found[0])
    return worst if worst.verdict is CheckStatus.OK else in_parts(worst, name)


_CONFIGURED: Final = ("configuration",)
CHECKS: Final = (
    Check("configuration", "the configuration file and the environment", _configuration),
    KEY_FILES,
    Check("state_dir", "the state directory: there and writable", _state_dir, _CONFIGURED),
    *UNIT_CHECKS,
    Check("devices", "the device tokens", _devices, ("configuration", "state_dir")),
    Check("http", "address and certificate for devices over HTTP", _http, _CONFIGURED),
    Check("mqtt", "the broker", _mqtt, _CONFIGURED, online=True, timeout_s=60.0),
    Check("service", "the service, with the gateway's keys", _service, ("key_files",), online=True, timeout_s=60.0),
)
"""Every check, in order."""
