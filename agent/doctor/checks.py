"""The checks of ``device-agent doctor``, some of which ``device-agent check`` runs, and what they look at.

Nothing is written, no command is taken, and no connection of a running agent is disturbed.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from agent import errors
from agent.app.lock import holder_of
from agent.app.plugins import is_usable, load_handlers, try_sensors
from agent.app.status import AgentStatus, StatusFile, read_agent_status
from agent.app.transport import make_broker, make_client, make_token
from agent.app.version import VERSION
from agent.config import AgentConfig, Credentials, LoadedConfig, read_credentials
from agent.config.model import AuthConfig, MqttConfig
from agent.core.timekeeping import is_plausible
from agent.doctor import Check, Finding, failed, ok, skipped, unreachable, warning
from agent.errors import ConfigurationError
from agent.health import describe
from agent.plugins import PluginStatus, states_of
from agent.runtime.clocks import is_synchronized
from agent.store.sqlite import FILE_NAME, damaged_copies
from agent.wire.client import DeviceClient
from agent.wire.network import authority, certificate_fault, connect, is_this_machine, trust_store
from agent.wire.server import COMMAND_STATUS
from agent.wire.topics import subscriptions

UNIT: Final = "device-agent.service"
TIMEOUT_S: Final = 5.0
"""How long one system program, request or connection of the checks may take."""

_PROPERTIES: Final = "LoadState,UnitFileState,ActiveState,SubState,Result,FragmentPath"
_SET_CLOCK: Final = "let the network set it: timedatectl set-ntp true, or install systemd-timesyncd or chrony"
_LATEST_S: Final = 4_102_444_800.0  # 2100-01-01: no device of today shows that rightly
_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
_LEAST_BYTES: Final = 16 * 1024 * 1024
_MB: Final = 1_000_000
_NEARLY: Final = 0.9
_STARTED_AT_BOOT: Final = frozenset({"enabled", "enabled-runtime", "static", "generated"})
_SOON_S: Final = 14 * 86_400.0
_FLEET_MAX: Final = 1000
"""So many devices of the list are looked at, which takes ten requests at our service."""
_AGREES_S: Final = 5.0
_WRONG_S: Final = 300.0


def run_command(argv: Sequence[str]) -> str:
    """A system program's output; empty when it is not there, fails or takes too long."""
    environment = {"LC_ALL": "C", "PATH": os.environ.get("PATH", os.defpath)}
    try:
        done = subprocess.run(argv, capture_output=True, timeout=TIMEOUT_S, check=True, env=environment)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace")


@dataclass
class Device:
    """One device, as the checks see it.

    Attributes:
        load: gives the configuration or raises :class:`~agent.errors.ConfigurationError`.
        environ: of this process.
        loads_plugins: try handlers and sensors here also while an agent runs, which may hold what they need.
        root: where ``/run`` is; another one in tests.
        run: runs a system program and returns its output.
        wall: this machine's clock, seconds since the epoch.
        is_synchronized: whether a time service keeps the clock; given systemd-timesyncd's marker.
    """

    load: Callable[[], LoadedConfig]
    environ: Mapping[str, str]
    loads_plugins: bool = False
    root: Path = Path("/")
    run: Callable[[Sequence[str]], str] = run_command
    wall: Callable[[], float] = time.time
    is_synchronized: Callable[[Path], bool] = is_synchronized

    @cached_property
    def loaded(self) -> LoadedConfig:
        """The configuration, and where it came from.

        Raises:
            ConfigurationError: every fault of it.
        """
        return self.load()

    @property
    def config(self) -> AgentConfig:
        """The configuration; only for checks that come after ``configuration``."""
        return self.loaded.config

    @cached_property
    def credentials(self) -> Credentials:
        """The agent's own: as systemd has handed them to the service that runs, else from the files.

        Raises:
            ConfigurationError: they cannot be read by whoever runs this, or are wrong.
        """
        handed_over = self.path(f"/run/credentials/{UNIT}")
        if handed_over.is_dir():
            return read_credentials(self.config.auth, {"CREDENTIALS_DIRECTORY": str(handed_over), **self.environ})
        return read_credentials(self.auth, self.environ)

    @cached_property
    def auth(self) -> AuthConfig:
        """Where the credentials are: as configured, else in the files that the unit hands over.

        ``systemctl show`` prints ``[unprintable]`` for those (systemd 252, 257). An empty assignment takes back
        the ones before it.
        """
        configured = self.config.auth
        text = self.run(["systemctl", "cat", UNIT, "--no-pager"]) if self.unit else ""
        in_force = re.split(r"(?m)^LoadCredential=\s*$", text)[-1]
        files = {f"{name}_file": Path(path) for name, path in re.findall(r"(?m)^LoadCredential=(\w+):(\S+)", in_force)}
        absent = {name for name in type(configured).model_fields if getattr(configured, name) is None}
        return configured.model_copy(update={name: path for name, path in files.items() if name in absent})

    @cached_property
    def status(self) -> AgentStatus:
        """The result of ``device-agent status``."""
        return read_agent_status(self.config, self.environ)

    @property
    def running(self) -> StatusFile | None:
        """The status that the running agent wrote; None when none runs."""
        return self.status.last_status if self.status.state == "running" else None

    @cached_property
    def unit(self) -> Mapping[str, str]:
        """Properties of the agent's unit, also of one that is not there; empty when systemd cannot be asked."""
        if not self.path("/run/systemd/system").is_dir():  # sd_booted(3)
            return {}
        text = self.run(["systemctl", "show", UNIT, "--no-pager", f"--property={_PROPERTIES}"])
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

    def path(self, absolute: str) -> Path:
        """A path of the system, below ``root``."""
        return self.root / absolute.lstrip("/")


# --- configuration and clock ------------------------------------------------------------------------------------------


def _configuration(device: Device) -> Iterator[Finding]:
    try:
        loaded = device.loaded
        signing = _signing_keys(loaded.config)
    except ConfigurationError as error:
        for sentence in error.faults:
            yield failed(error.source, sentence, "correct it, then: device-agent check")
        return
    if loaded.layer_fault:
        yield warning("what a command changed in the configuration is left out", loaded.layer_fault)
    yield ok(f"{loaded.path or 'the environment'} is whole and consistent{signing}")


def _signing_keys(config: Any) -> str:
    if config.commands.signing.mode == "off":
        return ""
    from agent.wire.signed import read_trusted_keys  # cryptography, only where commands are signed

    signing = config.commands.signing
    return f"; signing {signing.mode}, trusted: {', '.join(read_trusted_keys(signing.trusted_keys).key_ids)}"


def _clock(device: Device) -> Iterator[Finding]:
    wall_s = device.wall()
    seen = f"it shows {_shown(wall_s)}"
    if not is_plausible(wall_s) or wall_s > _LATEST_S:
        cause = "it was never set since the start (a board without a battery, no time from the network yet), or wrong"
        yield failed(seen, cause, _SET_CLOCK)
    elif not device.is_synchronized(device.path("/run/systemd/timesync/synchronized")):
        cause = "no time service has set it since the start, or its servers (UDP port 123) cannot be reached"
        yield warning(f"{seen} and runs by itself", cause, _SET_CLOCK)
    else:
        yield ok(f"{seen}, and a time service keeps it in step with the network")


def _shown(wall_s: float) -> str:
    """A moment as a person reads it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall_s))


# --- files ------------------------------------------------------------------------------------------------------------


def _key_files(device: Device) -> Iterator[Finding]:
    auth, mqtt = device.auth, device.config.mqtt
    names = ("token",) if auth.mode == "bearer" else ("api_key", "secret_key")
    files = [*(getattr(auth, f"{name}_file") for name in names), mqtt and mqtt.key_file]
    paths = [path for path in files if path is not None and path.is_file()]
    loose = [path for path in paths if _mode(path) & (stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP)]
    for path in loose:
        is_open = bool(_mode(path) & stat.S_IRWXO)
        cause = f"{'everybody on this machine' if is_open else 'its group'} may open or change it"
        fix = f"chmod 600 {path} (640 where the agent reads it by its group)"
        yield (failed if is_open else warning)(f"{path} has mode {_mode(path):o}", cause, fix)
    try:
        device.credentials  # noqa: B018 - reading them is the check
    except ConfigurationError as error:
        is_unreadable = not any(files) or any(not os.access(path, os.R_OK) for path in paths)
        if is_unreadable and device.unit.get("LoadState") == "loaded":
            yield skipped("the unit hands them over to the service alone: run this as root while the agent runs")
        elif not any(_mode(path) & stat.S_IRWXO for path in loose):  # reading them finds no more than that
            yield from (failed("the credentials cannot be used", sentence) for sentence in error.faults)
    else:
        if not loose:
            yield ok(f"{', '.join(map(str, paths)) or 'the credentials'}: nobody else can open them")


def _state_dir(device: Device) -> Iterator[Finding]:
    state_dir = device.config.state_dir
    if state_dir.exists() and not state_dir.is_dir():
        yield failed(f"{state_dir} is no directory", "something else has its name", "remove it, or set state_dir")
    elif state_dir.exists() and os.geteuid() not in {0, state_dir.stat().st_uid}:
        yield skipped(f"{state_dir} is another user's: run this as root")
    else:
        yield check_state_dir(state_dir)
        if state_dir.exists() and _mode(state_dir) & (stat.S_IRWXG | stat.S_IRWXO):
            cause = "others than its owner may look into it, and it holds tokens and what was commanded"
            yield warning(f"{state_dir} has mode {_mode(state_dir):o}", cause, f"chmod 700 {state_dir}")


def check_state_dir(state_dir: Path, whose: str = "agent") -> Finding:
    """Whether the state directory of ``whose`` program can be used; nothing is left in it."""
    holder = holder_of(state_dir)
    if holder is not None:
        return ok(f"{state_dir} is in use by the running {whose} (process {holder})")
    nearest = _nearest(state_dir)  # decides: the program makes the rest
    try:
        with tempfile.TemporaryFile(dir=nearest) as file:
            file.write(b"x")
    except OSError as error:
        is_full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        fix = f"{'make room there' if is_full else f'chown {nearest}'}, or set state_dir"
        return failed(f"{state_dir} cannot be written by this user", error.strerror or str(error), fix)
    return ok(f"{state_dir} can be written")


def _disk(device: Device) -> Iterator[Finding]:
    """The file system of the state directory: whether it keeps data over a restart, and has room."""
    state_dir = device.config.state_dir
    mount = _mount_of(device, state_dir)
    if mount is not None:
        yield _durable(device, *mount)
    room = os.statvfs(_nearest(state_dir))
    free, wanted = room.f_bavail * room.f_frsize, device.config.outbox.max_bytes
    seen = f"{free // _MB} MB are free for {state_dir}"
    fix = "free space (journalctl --vacuum-size=50M, apt-get clean), or lower outbox.max_bytes"
    if free < _LEAST_BYTES:
        yield failed(seen, "the disk is full: readings and results cannot be stored", fix)
    elif free < wanted:
        yield warning(seen, f"the outbox may grow to {wanted // _MB} MB, and there is not that much", fix)
    else:
        yield ok(seen)


def _durable(device: Device, point: str, kind: str, options: str) -> Finding:
    seen, fix = f"the state directory lies on {kind} ({point})", "set state_dir to a directory on the flash or disk"
    if kind == "overlay":
        # What is written lies in its upper directory, and lasts as long as that does. Made before the root file
        # system was changed, as at boot, its path is not this one's.
        upper = options.partition("upperdir=")[2].partition(",")[0]
        below = _mount_of(device, Path(upper)) if upper and Path(upper).is_dir() else None
        fix += " itself, or switch the overlay off (raspi-config)"
        if below is None or below[1] == "overlay":
            cause = f"its upper directory {upper} cannot be seen from here; most likely it is a RAM disk"
            return warning(seen, f"{cause}, and what waits is lost at each boot", fix)
        seen, kind = f"{seen}, written to {upper} on {below[1]}", below[1]
    if kind in _MEMORY:
        return failed(seen, "a RAM disk: what waits there is lost with the power, and commands may run twice", fix)
    if options.split(",")[0] == "ro":
        cause = "the file system is mounted read-only, perhaps by the kernel after errors"
        return failed(seen, cause, f"look into dmesg, then: mount -o remount,rw {point}")
    return ok(seen)


def _mount_of(device: Device, path: Path) -> tuple[str, str, str] | None:
    """Mount point, type and options of the file system that holds ``path``; None where this cannot be found out."""
    words = ["findmnt", "--noheadings", "--raw", "--output=TARGET,FSTYPE,OPTIONS", "--target", str(_nearest(path))]
    found = device.run(words).split()
    return (found[0], found[1], found[2]) if len(found) == 3 else None


def _database(device: Device) -> Iterator[Finding]:
    path, store, bounds = device.config.state_dir / FILE_NAME, device.status.store, device.config.outbox
    if device.status.store_fault:
        yield failed(str(path), device.status.store_fault)
    elif store is None:
        yield skipped(f"there is no {path} yet")
    else:
        rows, size = store.outbox.rows, store.outbox.size_bytes
        seen = f"{path}: {store.disk_bytes / _MB:.1f} MB, {rows} readings wait ({size / _MB:.1f} MB)"
        if rows > bounds.max_rows * _NEARLY or size > bounds.max_bytes * _NEARLY:
            cause = "readings come in faster than they go out, or nothing goes out; soon some are dropped"
            fix = "see the checks of the network; read less often, or raise outbox.max_bytes and max_rows"
            yield warning(seen, cause, fix)
        else:
            yield ok(seen)
    damaged = damaged_copies(path)
    incidents = store.incidents if store is not None else ()
    if damaged or incidents:
        cause = incidents[0] if incidents else "power cuts on a card that lies about writing, or a dying card"
        fix = f"replace the card when it happens again; once nobody needs the copies: rm {path}.damaged-*"
        yield warning(f"it was damaged before; {len(damaged)} damaged copies are kept", cause, fix)


def _nearest(path: Path) -> Path:
    return next(each for each in (path, *path.parents) if each.exists())


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- plug-ins, and the agent that runs --------------------------------------------------------------------------------


def _handlers(device: Device) -> Iterator[Finding]:
    running = None if device.loads_plugins else device.running
    plugins = states_of(load_handlers(device.config).listing, {}) if running is None else running.plugins
    states = {name.removeprefix("handler:"): text for name, text in plugins.items() if name.startswith("handler:")}
    usable = sorted(name for name, text in states.items() if text == PluginStatus.READY)
    how = "each loaded once" if running is None else "as the running agent reports"
    yield ok(f"{len(usable)} can be used, {how}: {', '.join(usable)}")
    for name, why in states.items():
        if not why.startswith((PluginStatus.READY, PluginStatus.DISABLED)):
            fix = f"mend it, or set commands.handlers.{name}.enabled: false; device-agent plugins list shows all"
            yield failed(f"{name} cannot be used", f"{name} is {why}", fix)


def _sensors(device: Device) -> Iterator[Finding]:
    fix = "mend wiring, settings or access (docs/operations.md, The sandbox); device-agent plugins list reads them all"
    if device.running is not None and not device.loads_plugins:
        # A bus that two programs read at once may give both nonsense.
        yield ok(f"{len(device.config.sensors)} configured, read as the running agent reports")
        return
    for each in try_sensors(device.config, device.running):
        if each.status is PluginStatus.READY:
            yield ok(f"{each.name} reads {each.description}")
        elif is_usable(each):
            yield ok(f"{each.name} is switched off")
        else:
            yield failed(each.name, f"{each.name} is {each.status}: {each.reason}", fix)


def _unit(device: Device) -> Iterator[Finding]:
    unit = device.unit
    if not unit:
        yield skipped("this machine was not booted with systemd, or systemctl does not answer")
        return
    if unit.get("LoadState") != "loaded":
        cause = "without a unit nobody starts it at boot and after a crash"
        fix = f"copy systemd/{UNIT} to /etc/systemd/system, then: systemctl enable --now device-agent"
        yield warning(f"{UNIT} is {unit.get('LoadState', 'not there')}", cause, fix)
        return
    words = ", ".join(unit.get(name, "") for name in ("UnitFileState", "ActiveState", "SubState"))
    seen = f"{unit.get('FragmentPath')}: {words}"
    at_boot = unit.get("UnitFileState") in _STARTED_AT_BOOT
    if unit.get("ActiveState") not in {"active", "reloading"}:
        cause = f"it does not run; the last run ended with {unit.get('Result', 'no result')}"
        start = "systemctl start" if at_boot else "systemctl enable --now"
        yield failed(seen, cause, f"journalctl -u device-agent -n 50 says why; then: {start} device-agent")
        return
    if at_boot:
        yield ok(seen)
    else:
        yield warning(seen, "it runs now, but is not started at boot", "systemctl enable device-agent")


def _agent(device: Device) -> Iterator[Finding]:
    status, running = device.status, device.running
    if status.state == "died":
        cause = "its last process ended without saying so: killed, out of memory, or the power was cut"
        yield failed("no agent runs", cause, "journalctl -u device-agent -n 50; then: systemctl start device-agent")
    elif running is None:
        why = f": {status.last_status.reason}" if status.last_status is not None and status.last_status.reason else ""
        yield warning(f"no agent runs: {status.state}{why}", "it was not started", "systemctl start device-agent")
    else:
        bad = {name: part for name, part in running.parts.items() if part.state != "ok"}
        seen = f"process {status.process_id} runs version {running.version}"
        if not bad:
            yield ok(f"{seen}, and all {len(running.parts)} parts of it are well")
        for name, part in bad.items():
            verdict = failed if name == "mode" or name.startswith("sensor:") else warning
            fix = _FIXES.get(name.split(":")[0], "look at the check of that part")
            yield verdict(f"{seen}; {name} is {part.state}", part.detail or "it says no more", fix)
        if running.version != VERSION:
            cause = f"version {VERSION} is installed: the agent was started before the update"
            yield warning(seen, cause, "systemctl restart device-agent")


_FIXES: Final = {
    "mode": "journalctl -u device-agent -p err says why; mend it, then restart",
    "sensor": "mend wiring, settings or access (docs/operations.md, The sandbox)",
}
"""Part of the agent -> how to correct it when its state is not ``ok``."""


# --- service and broker -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server that the agent talks to.

    Attributes:
        what: ``service``, ``broker`` or ``gateway``.
        trust: the authorities to trust, with the device's own certificate; None for a connection without TLS.
        address: what says where it is, such as a key of the configuration.
        ca_file: what names the file of another authority.
    """

    what: str
    host: str
    port: int
    trust: Callable[[], ssl.SSLContext] | None
    address: str
    ca_file: str

    def __str__(self) -> str:
        return f"{self.what} {authority(self.host, self.port)}"


def endpoints_of(config: AgentConfig) -> Iterator[Endpoint]:
    """Service and broker, as far as they are configured."""
    if config.service is not None:
        parts, ca_file = urlsplit(config.service.base_url), config.service.ca_file
        trust = (lambda: trust_store(ca_file)) if parts.scheme == "https" else None
        port = parts.port or (443 if trust else 80)
        yield Endpoint("service", parts.hostname or "", port, trust, "service.base_url", "service.ca_file")
    if config.mqtt is not None:
        mqtt = config.mqtt
        broker_trust = (lambda: _broker_trust(mqtt)) if mqtt.tls else None
        yield Endpoint("broker", mqtt.host, mqtt.port_in_use, broker_trust, "mqtt.host and mqtt.port", "mqtt.ca_file")


def _broker_trust(mqtt: MqttConfig) -> ssl.SSLContext:
    context = trust_store(mqtt.ca_file)
    if mqtt.cert_file is not None:
        context.load_cert_chain(mqtt.cert_file, mqtt.key_file)
    return context


def _connection(device: Device) -> Iterator[Finding]:
    return (judge_connection(endpoint, device.wall()) for endpoint in endpoints_of(device.config))


def judge_connection(endpoint: Endpoint, wall_s: float) -> Finding:
    """Name, port and certificate of one server; no credential is sent.

    Args:
        endpoint: the server.
        wall_s: what this device's clock shows, epoch seconds.
    """
    try:
        plain = connect(endpoint.host, endpoint.port, TIMEOUT_S)
    except (socket.gaierror, UnicodeError) as error:
        cause = f"no address is known for it ({error.args[-1]})"
        fix = f"check {endpoint.address}, the network and the name server (resolvectl status, or /etc/resolv.conf)"
        return unreachable(str(endpoint), cause, fix)
    except ConnectionRefusedError:
        fix = f"start the {endpoint.what}, or correct the port in {endpoint.address}"
        return unreachable(str(endpoint), "the machine is there, and nobody listens on that port", fix)
    except TimeoutError:
        cause = f"no answer within {TIMEOUT_S:g} s: the machine is off, or a firewall drops the packets"
        fix = f"let the firewall pass outgoing TCP port {endpoint.port}, or correct {endpoint.address}"
        return unreachable(str(endpoint), cause, fix)
    except OSError as error:
        fix = "check cable, radio and route (ip route), then try again"
        return unreachable(str(endpoint), error.strerror or str(error), fix)
    with plain:
        if endpoint.trust is not None:
            return _judge_tls(endpoint, plain, endpoint.trust, wall_s)
    if is_this_machine(endpoint.host):
        return ok(f"the {endpoint.what} is on this machine: no TLS is needed")
    fix = "use https:// or mqtt.tls: true; plain is for closed test networks"
    cause = "anybody on the way reads the keys and changes commands"
    return warning(f"the {endpoint} is configured without TLS", cause, fix)


def _judge_tls(endpoint: Endpoint, plain: socket.socket, trust: Callable[[], ssl.SSLContext], wall_s: float) -> Finding:
    try:
        with trust().wrap_socket(plain, server_hostname=endpoint.host) as sock:
            certificate: dict[str, Any] = dict(sock.getpeercert() or {})
    except ssl.SSLCertVerificationError as error:
        cause = certificate_fault(error, endpoint.address, endpoint.ca_file)
        return failed(f"the certificate of {endpoint} is refused (this device's clock: {_shown(wall_s)})", cause)
    except OSError as error:  # ssl's errors are such
        reason = getattr(error, "reason", "") or error.strerror or str(error)
        if "CERTIFICATE" in reason.upper():
            cause = f"it refuses this device's certificate ({reason})"
            return failed(str(endpoint), cause, "renew mqtt.cert_file, mqtt.key_file")
        fix = f"correct the port in {endpoint.address}, which may not speak TLS; look at the proxy or firewall between"
        return unreachable(str(endpoint), f"the TLS handshake failed ({reason})", fix)
    ends_s = ssl.cert_time_to_seconds(certificate["notAfter"])
    seen = f"the certificate of {endpoint} is good until {_shown(ends_s)}"
    if ends_s - wall_s < _SOON_S:
        cause = f"it ends in {max(0.0, ends_s - wall_s) / 86_400:.0f} days, and the device will not connect after that"
        return warning(seen, cause, f"have whoever runs the {endpoint.what} renew it")
    return ok(seen)


def _broker(device: Device) -> Iterator[Finding]:
    mqtt = device.config.mqtt
    if mqtt is None:
        yield skipped("no broker is configured: the agent speaks HTTP only")
        return
    if device.status.process_id is not None:
        # A second connection with the same id would throw the agent's out.
        part = None if device.running is None else device.running.parts.get("broker")
        if part is None or part.state == "ok":
            yield ok(f"left alone: the agent runs{'' if part is None else ' and is connected'}")
        else:
            yield failed(f"left alone: the running agent is not connected: {part.state}", part.detail or part.state)
        return
    broker = make_broker(device.config, mqtt)
    try:
        try_broker(device.config, mqtt, device.credentials)
    except errors.LockedOut as error:
        yield failed(str(broker), str(error))
    except errors.Offline as error:
        yield (failed if error.state == "bad_certificate" else unreachable)(str(broker), str(error))
    else:
        yield ok(f"{broker} takes this device's token and speaks MQTT {mqtt.version}")


def try_broker(config: AgentConfig, mqtt: MqttConfig, credentials: Credentials) -> None:
    """Connect and subscribe once as this device, which takes the connection from a running agent.

    Raises:
        ConfigurationError: the device id cannot be a user of a broker.
        Offline: it did not work, and why.
    """
    from agent.transports.mqtt_connection import try_connection  # paho, only where there is a broker

    broker, token = make_broker(config, mqtt), make_token(credentials)()
    trouble = try_connection(broker, token, subscriptions(config.device.device_id))
    if trouble is not None:
        raise trouble


def _service(device: Device) -> Iterator[Finding]:
    service, device_id = device.config.service, device.config.device.device_id
    if service is None:
        yield skipped("no service is configured: commands and readings go through the broker alone")
        return
    service = service.model_copy(update={"timeout_s": min(service.timeout_s, TIMEOUT_S)})
    configured = service.dialect.dialect().extensions
    ahead_s: list[float] = []
    fault: errors.ServiceError | errors.InvalidMessage | None = None
    try:
        with make_client(service, device.credentials) as client:
            client.on_date = lambda server_s, _took_s: ahead_s.append(device.wall() - server_s)
            offered = client.discover().extensions if configured is None else configured
            knows = knows_device(client, device_id, offered)
    except (errors.ServiceError, errors.InvalidMessage) as error:
        fault, server_s = error, getattr(error, "server_time", None)
        ahead_s += [] if server_s is None else [device.wall() - server_s]
    if ahead_s:
        yield _clock_beside_services(ahead_s[0])
    seen = f"{service.base_url}, device {device_id}"
    if fault is None:
        known = "accepts the keys and knows it" if knows else "answers; more cannot be asked without a risk"
        yield ok(f"{seen}: it {known}; extensions: {', '.join(sorted(offered)) or 'none'}")
    elif isinstance(fault, errors.TransportError):
        yield unreachable(seen, str(fault))
    else:
        yield (warning if isinstance(fault, errors.RateLimited) else failed)(seen, describe(fault)[1])


def _clock_beside_services(ahead_s: float) -> Finding:
    if abs(ahead_s) <= _AGREES_S:
        return ok("this machine's clock agrees with the service's within 5 s")
    seen = f"this machine's clock is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} the service's"
    cause = "one of the two clocks is wrong; the agent goes by the service's, other programs do not"
    return (failed if abs(ahead_s) > _WRONG_S else warning)(seen, cause, _SET_CLOCK)


def knows_device(client: DeviceClient, device_id: str, offered: Container[str]) -> bool:
    """True when the service knows the device; False when that cannot be found out without a risk.

    A service with ``command-status`` is asked for the device's running commands, which marks none as delivered. Any
    other may hand out each command once, so its list of devices is read instead.

    Args:
        client: makes the requests.
        device_id: the device.
        offered: the service's extensions, announced or configured.

    Raises:
        NotFound: the service does not know it.
        ServiceError: the service could not be asked, or does not accept the credentials.
    """
    if COMMAND_STATUS in offered:
        client.device_commands(device_id, status="in_progress")
        return True
    try:
        listed = [device.device_id for device in islice(client.devices(), _FLEET_MAX)]
    except (errors.Forbidden, errors.Refused):
        return False  # a credential for this device alone, or a server that does not list
    if device_id in listed:
        return True
    if len(listed) >= _FLEET_MAX or not any(listed):
        return False
    raise errors.NotFound(404, "device_not_found", f"it is not among the {len(listed)} devices that the service lists")


_CONFIGURED: Final = ("configuration",)
CHECKS: Final = (
    Check("configuration", _configuration),
    Check("clock", _clock),
    Check("key_files", _key_files, _CONFIGURED),
    Check("state_dir", _state_dir, _CONFIGURED),
    Check("disk", _disk, _CONFIGURED),
    Check("database", _database, _CONFIGURED, timeout_s=30.0),
    Check("handlers", _handlers, _CONFIGURED, timeout_s=60.0),
    Check("sensors", _sensors, _CONFIGURED, timeout_s=60.0),
    Check("unit", _unit, _CONFIGURED),
    Check("agent", _agent, _CONFIGURED),
    Check("connection", _connection, _CONFIGURED, online=True, timeout_s=8 * TIMEOUT_S),
    Check("broker", _broker, ("key_files", "connection"), online=True, timeout_s=45.0),
    Check("service", _service, ("key_files", "connection"), online=True, timeout_s=30.0),
)
"""Every check, in the order in which they run; docs/operations.md has the table."""

BEFORE_START: Final = frozenset({"configuration", "key_files", "state_dir", "handlers", "sensors"})
"""The checks on this device that ``device-agent check`` runs before the agent is started or its file is taken up."""
