"""The checks that look at this machine alone."""

from __future__ import annotations

import errno
import json
import os
import pwd
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from agent.app.lock import holder_of
from agent.app.plugins import is_usable, load_handlers, read_sensors
from agent.app.start_counter import FILE_NAME as STARTS
from agent.app.version import VERSION
from agent.core.timekeeping import is_plausible
from agent.doctor.device import UNIT, Device
from agent.doctor.findings import Check, CheckStatus, Finding, failed, ok, skipped, warning
from agent.errors import ConfigurationError
from agent.plugins import PluginStatus
from agent.process.program import DEFAULT_PATH
from agent.store.sqlite import FILE_NAME, damaged_copies

SET_CLOCK: Final = "let the network set it: timedatectl set-ntp true, or install systemd-timesyncd or chrony"
REBOOT_UNIT: Final = "device-agent-reboot.timer"

_NO_SYSTEMD: Final = "this machine was not booted with systemd"
_LATEST_S: Final = 4_102_444_800.0  # 2100-01-01: no device of today shows that rightly
_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
_LEAST_BYTES: Final = 16 * 1024 * 1024
_MB: Final = 1_000_000
_NEARLY: Final = 0.9
_STARTED_AT_BOOT: Final = frozenset({"enabled", "enabled-runtime", "static", "generated"})


# --- the installation -------------------------------------------------------------------------------------------------


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
    count = len(loaded.variables)
    variables = f", with {count} environment variable{'s' * (count > 1)} over it" if count else ""
    yield ok(f"{loaded.path or 'the environment'} is whole and consistent{variables}{signing}")


def _signing_keys(config: Any) -> str:
    if config.commands.signing.mode == "off":
        return ""
    from agent.wire.signed import read_trusted_keys  # cryptography, only where commands are signed

    signing = config.commands.signing
    return f"; signing {signing.mode}, trusted: {', '.join(read_trusted_keys(signing.trusted_keys).key_ids)}"


def _package_version(device: Device) -> Iterator[Finding]:
    try:
        installed = version("device-agent")
    except PackageNotFoundError:
        installed = VERSION
    running = VERSION if device.running is None else device.running.version
    if installed != VERSION:
        cause = f"the program says {VERSION} and its package {installed}: two installations are mixed"
        yield failed(f"version {VERSION}", cause, "install device-agent again into an empty virtual environment")
    elif running != VERSION:
        cause = f"the agent that runs is version {running}: it was started before the update"
        yield warning(f"version {VERSION} is installed", cause, "systemctl restart device-agent")
    else:
        yield ok(f"version {VERSION}{'' if device.running is None else ', and the agent that runs is the same'}")


def _clock(device: Device) -> Iterator[Finding]:
    wall_s = device.wall()
    seen = f"it shows {shown(wall_s)}"
    if not is_plausible(wall_s):
        cause = "it was never set since the start: a board without a battery, and no time from the network yet"
        yield failed(seen, cause, SET_CLOCK)
    elif wall_s > _LATEST_S:
        yield failed(seen, "it lies far in the future: the battery-backed clock was set wrong", SET_CLOCK)
    elif not device.is_synchronized(device.path("/run/systemd/timesync/synchronized")):
        cause = "no time service has set it since the start, or its servers (UDP port 123) cannot be reached"
        yield warning(f"{seen} and runs by itself", cause, SET_CLOCK)
    else:
        yield ok(f"{seen}, and a time service keeps it in step with the network")


def shown(wall_s: float) -> str:
    """A moment as a person reads it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall_s))


def _unit(device: Device) -> Iterator[Finding]:
    if not device.has_systemd:
        yield skipped(_NO_SYSTEMD)
        return
    unit = device.unit()
    if not unit:
        yield skipped("systemctl does not answer")
        return
    if unit.get("LoadState") != "loaded":
        cause = "without a unit nobody starts it at boot and after a crash"
        fix = f"copy systemd/{UNIT} to /etc/systemd/system, then: systemctl enable --now device-agent"
        yield warning(f"{UNIT} is {unit.get('LoadState', 'not there')}", cause, fix)
        return
    seen = (
        f"{unit.get('FragmentPath')}: {unit.get('UnitFileState')}, {unit.get('ActiveState')} ({unit.get('SubState')})"
    )
    at_boot = unit.get("UnitFileState") in _STARTED_AT_BOOT
    if unit.get("ActiveState") not in {"active", "reloading"}:
        cause = f"it does not run; the last run ended with {unit.get('Result', 'no result')}"
        start = "systemctl start" if at_boot else "systemctl enable --now"
        yield failed(seen, cause, f"journalctl -u device-agent -n 50 says why; then: {start} device-agent")
    elif not at_boot:
        yield warning(seen, "it runs now, but is not started at boot", "systemctl enable device-agent")
    else:
        yield ok(seen)


def _reboot_unit(device: Device) -> Iterator[Finding]:
    handler = device.config.commands.handlers.get("reboot")
    is_off = (handler is not None and not handler.enabled) or "reboot" in device.config.executables
    if is_off or not device.has_systemd:
        yield skipped("the handler reboot is not in use" if is_off else _NO_SYSTEMD)
        return
    unit = device.unit(REBOOT_UNIT)
    if unit.get("LoadState") == "loaded" and unit.get("ActiveState") == "active":
        yield ok(f"{REBOOT_UNIT} is active")
        return
    seen = f"{REBOOT_UNIT} is {unit.get('LoadState', 'not there')}, {unit.get('ActiveState', 'inactive')}"
    cause = "the agent's sandbox may not reboot the device; this unit does, and it is not active"
    fix = f"install its units, systemctl enable --now {REBOOT_UNIT}; or set commands.handlers.reboot.enabled: false"
    yield warning(seen, cause, fix)


# --- files ------------------------------------------------------------------------------------------------------------


def _key_files(device: Device) -> Iterator[Finding]:
    auth, mqtt = device.config.auth, device.config.mqtt
    bearer = {"token": auth.token_file}
    named = bearer if auth.mode == "bearer" else {"api_key": auth.api_key_file, "secret_key": auth.secret_key_file}
    further = () if mqtt is None or mqtt.key_file is None else (mqtt.key_file,)
    for name, path in named.items():
        if path is not None and name not in device.credential_files and not _service_may_read(device, path):
            user = device.unit()["User"]
            cause = f"{user} may not read {path}, and the unit does not hand it over as a credential"
            fix = f"chown {user} {path}, or add LoadCredential={name}:{path} to the unit: systemctl edit device-agent"
            yield failed(f"the unit runs as {user}", cause, fix)
            return
    files = (*named.values(), *further, *device.credential_files.values())
    paths = list(dict.fromkeys(path for path in files if path is not None and path.is_file()))
    loose = [path for path in paths if _mode(path) & (stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP)]
    for path in loose:
        mode = _mode(path)
        verdict = failed if mode & stat.S_IRWXO else warning
        who = "everybody on this machine" if mode & stat.S_IRWXO else "its group"
        fix = f"chmod 600 {path} (640 where the agent reads it by its group)"
        yield verdict(f"{path} has mode {mode:o}", f"{who} may open or change it", fix)
    if any(_mode(path) & stat.S_IRWXO for path in loose):
        return
    state = device.config.state_dir.stat() if device.config.state_dir.exists() else None
    owners = {0, os.geteuid(), *([state.st_uid] if state else ())}
    for path in paths:
        if path.stat().st_uid not in owners:
            cause = "it belongs neither to root nor to the agent's user, so its owner can replace the key"
            yield warning(f"{path} belongs to user {path.stat().st_uid}", cause, f"chown root {path}")
    try:
        device.credentials  # noqa: B018 - reading them is the check
    except ConfigurationError as error:
        yield from _unreadable(device, named, error)
        return
    if not loose:
        yield ok(f"{', '.join(map(str, paths)) or 'the credentials'}: nobody else can open them")


def _unreadable(device: Device, named: dict[str, Path | None], error: ConfigurationError) -> Iterator[Finding]:
    """Keys that cannot be read here: perhaps the unit hands them to the service alone."""
    closed = [path for path in named.values() if path is not None and path.is_file() and not os.access(path, os.R_OK)]
    missing = [name for name, path in named.items() if path is None]
    lines = device.credential_lines
    # A file that should be handed over and is not there is a fault; of an encrypted one only systemd can say.
    handed_over = [name for name, _, path in (line.partition(":") for line in lines) if not _is_gone(path)]
    if closed and all(any(line.endswith(f":{path}") for line in lines) for path in closed):
        yield skipped("only root may read them, and the unit hands them over: start the agent, or chgrp and chmod 640")
    elif missing and set(missing) <= set(handed_over):
        yield skipped("the unit hands them over, and only while the service runs can they be read")
    else:
        for sentence in error.faults:
            yield failed("the credentials cannot be used", sentence)


def _is_gone(path: str) -> bool:
    return path.startswith("/") and not Path(path).exists()


def _service_may_read(device: Device, path: Path) -> bool:
    """By user, groups and mode; True where there is no such file, or no unit with a user of its own."""
    user = device.unit().get("User") if device.has_systemd else None
    if not user or not path.is_file():
        return True
    try:
        known = pwd.getpwnam(user)
    except KeyError:
        return os.access(path, os.R_OK)
    status = path.stat()
    groups = os.getgrouplist(user, known.pw_gid)
    bits = stat.S_IROTH
    bits |= stat.S_IRUSR if status.st_uid == known.pw_uid else 0
    bits |= stat.S_IRGRP if status.st_gid in groups else 0
    return bool(status.st_mode & bits)


def _state_dir(device: Device) -> Iterator[Finding]:
    state_dir = device.config.state_dir
    if state_dir.exists() and not state_dir.is_dir():
        yield failed(f"{state_dir} is no directory", "something else has its name", "remove it, or set state_dir")
        return
    if state_dir.exists() and os.geteuid() not in {0, state_dir.stat().st_uid}:
        yield skipped(f"{state_dir} is another user's: run this as root")
        return
    found = check_state_dir(state_dir)
    if found.verdict is CheckStatus.FAILED or not state_dir.exists():
        yield found
    elif _mode(state_dir) & (stat.S_IRWXG | stat.S_IRWXO):
        cause = "others than its owner may look into it, and it holds tokens and what was commanded"
        yield warning(f"{state_dir} has mode {_mode(state_dir):o}", cause, f"chmod 700 {state_dir}")
    else:
        yield ok(f"{found.seen}; mode {_mode(state_dir):o}")


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
    room = os.statvfs(nearest)
    return ok(f"{state_dir} can be written, {room.f_bavail * room.f_frsize // _MB} MB are free")


def _state_dir_durable(device: Device) -> Iterator[Finding]:
    mount = _mount_of(device, device.config.state_dir)
    if mount is None:
        yield skipped("this system does not list its mounts (/proc/self/mountinfo)")
        return
    point, kind, options = mount
    seen = f"it lies on {kind} ({point})"
    if kind in _MEMORY:
        cause = "a RAM disk: what waits there is lost with the power, and commands may run twice"
        yield failed(seen, cause, "set state_dir to a directory on the flash or disk")
    elif kind == "overlay":
        yield _overlay_durable(device, seen, options)
    elif "ro" in options:
        cause = "the file system is mounted read-only, perhaps by the kernel after errors"
        yield failed(seen, cause, f"look into dmesg, then: mount -o remount,rw {point}")
    else:
        yield ok(seen)


def _overlay_durable(device: Device, seen: str, options: list[str]) -> Finding:
    """What is written to an overlay lies in its upper directory, and lasts as long as that does."""
    fix = "set state_dir to a directory on the flash or disk itself, or switch the overlay off (raspi-config)"
    upper = next((each.partition("=")[2] for each in options if each.startswith("upperdir=")), None)
    if upper is None or "ro" in options:
        return failed(seen, "an overlay that cannot be written", fix)
    # Made before the root file system was changed, as at boot, its path is not this one's.
    below = _mount_of(device, Path(upper)) if Path(upper).is_dir() else None
    if below is None or below[1] == "overlay":
        cause = f"an overlay whose upper directory {upper} cannot be seen from here: most likely it is a RAM disk"
        return warning(seen, f"{cause}, and what waits is lost at each boot", fix)
    if below[1] in _MEMORY:
        cause = f"what is written goes to {upper} on {below[1]}, a RAM disk: each boot begins with the card's state"
        return failed(seen, f"{cause}, and commands may run twice", fix)
    return ok(f"{seen}, written to {upper} on {below[1]}")


def _mount_of(device: Device, path: Path) -> tuple[str, str, list[str]] | None:
    """Mount point, type and options of the file system that holds ``path`` (proc(5), mountinfo)."""
    try:
        text = device.path("/proc/self/mountinfo").read_text("utf-8", "replace")
    except OSError:
        return None
    best: tuple[str, str, list[str]] | None = None
    wanted = os.path.realpath(path)
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 6 or not kind:
            continue
        point = fields[4].replace("\\040", " ")
        is_above = point in {"/", wanted} or wanted.startswith(f"{point}/")
        # Of two mounts on one point the later hides the earlier.
        if is_above and (best is None or len(point) >= len(best[0])):
            best = (point, kind[0], [*fields[5].split(","), *(kind[2].split(",") if len(kind) > 2 else [])])
    return best


def _disk_space(device: Device) -> Iterator[Finding]:
    room = os.statvfs(_nearest(device.config.state_dir))
    free, wanted = room.f_bavail * room.f_frsize, device.config.outbox.max_bytes
    seen = f"{free // _MB} MB are free for {device.config.state_dir}"
    fix = "free space (journalctl --vacuum-size=50M, apt-get clean), or lower outbox.max_bytes"
    if free < _LEAST_BYTES:
        yield failed(seen, "the disk is full: readings and results cannot be stored", fix)
    elif free < wanted:
        yield warning(seen, f"the outbox may grow to {wanted // _MB} MB, and there is not that much", fix)
    else:
        yield ok(seen)


def _database(device: Device) -> Iterator[Finding]:
    path, store, bounds = device.config.state_dir / FILE_NAME, device.status.store, device.config.outbox
    if device.status.store_fault:
        yield failed(str(path), device.status.store_fault)
    elif store is None:
        yield skipped(f"there is no {path} yet")
    else:
        outbox = store.outbox
        waiting = f"{outbox.rows} readings wait ({outbox.size_bytes / _MB:.1f} MB)"
        seen = f"{path}: {store.disk_bytes / _MB:.1f} MB, {waiting}"
        if outbox.rows > bounds.max_rows * _NEARLY or outbox.size_bytes > bounds.max_bytes * _NEARLY:
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


# --- plug-ins and the agent that runs ---------------------------------------------------------------------------------


def _handlers(device: Device) -> Iterator[Finding]:
    running = None if device.loads_plugins else device.running
    if running is not None:
        states = {name[8:]: text for name, text in running.plugins.items() if name.startswith("handler:")}
        usable = sorted(name for name, text in states.items() if text.startswith(PluginStatus.READY))
        good = (PluginStatus.READY, PluginStatus.DISABLED)
        faults = {name: text for name, text in states.items() if not text.startswith(good)}
    else:
        listing = load_handlers(device.config).listing()
        usable = sorted(info.name for info in listing if info.status is PluginStatus.READY)
        faults = {info.name: f"{info.status}: {info.reason}" for info in listing if not is_usable(info)}
    how = "each loaded once" if running is None else "as the running agent reports"
    yield ok(f"{len(usable)} can be used, {how}: {', '.join(usable)}")
    for name, why in faults.items():
        fix = f"mend it, or set commands.handlers.{name}.enabled: false; device-agent handlers lists all"
        yield failed(f"{name} cannot be used", f"{name} is {why}", fix)


def _sensors(device: Device) -> Iterator[Finding]:
    if not device.config.sensors:
        yield ok("none is configured, so no readings are sent")
        return
    fix = "mend wiring, settings or access (docs/operations.md, The sandbox); device-agent sensors reads them all"
    running = None if device.loads_plugins else device.running
    if running is None:
        for each in read_sensors(device.config, device.running):
            if each.state == "ok":
                yield ok(f"{each.name} reads {', '.join(f'{name}={value:g}' for name, value in each.values.items())}")
            elif each.is_good:
                yield ok(f"{each.name} is switched off")
            else:
                yield failed(each.name, f"{each.name} is {each.state}: {each.reason}", fix)
        return
    # A bus that two programs read at once may give both nonsense.
    yield ok(f"{len(device.config.sensors)} configured; as the running agent reports")
    for name, part in running.parts.items():
        if name.startswith("sensor:") and part.state != "ok":
            yield failed(name, f"{name} is {part.state}: {part.detail}", fix)


def _programs(device: Device) -> Iterator[Finding]:
    """Who may change what runs with the agent's rights; whether it can be started is said with handlers and sensors."""
    wanted: dict[str, Any] = {f"executables.{name}": each for name, each in device.config.executables.items()}
    wanted |= {f"sensor {each.name}": each.settings for each in device.config.sensors if each.type == "program"}
    if not wanted:
        yield skipped("no program is configured")
    for owner, settings in wanted.items():
        argv = settings.get("argv")
        if not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv):
            continue  # the checks of handlers and sensors say so
        found = shutil.which(argv[0], path=DEFAULT_PATH)
        if found is None:
            continue
        path = Path(found)
        if _is_writable_by_others(path):
            cause = "everybody on this machine may change it, and it runs with the agent's rights"
            yield failed(f"{owner} starts {path}", cause, f"chmod o-w {path} {path.parent}")
        else:
            yield ok(f"{owner} starts {path}, which nobody else may change")


def _is_writable_by_others(path: Path) -> bool:
    parent = path.parent.stat().st_mode
    return bool(path.stat().st_mode & stat.S_IWOTH or (parent & stat.S_IWOTH and not parent & stat.S_ISVTX))


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
        seen = f"process {status.process_id} runs"
        if not bad:
            yield ok(f"{seen}, and all {len(running.parts)} parts of it are well")
        for name, part in bad.items():
            if name == "mode":
                seen = "the agent runs in safe mode: no plug-ins, no executables, no sensors"
                yield failed(seen, part.detail, "journalctl -u device-agent -p err says why; mend it, then restart")
            else:
                cause = part.detail or "it says no more"
                yield warning(f"{seen}; {name} is {part.state}", cause, "look at the check of that part")
    count = _unfinished_starts(device.config.state_dir / STARTS)
    # The one that runs is counted until it has stayed up for long enough.
    if count > (1 if running is not None else 0):
        cause = "they were ended by a crash, a kill or a power cut before they were healthy"
        limit = device.config.safe_mode.starts
        fix = f"journalctl -u device-agent -p err says why; after {limit} in a row the agent starts in safe mode"
        yield warning(f"{count} starts in a row came to nothing", cause, fix)


def _unfinished_starts(path: Path) -> int:
    try:
        return int(json.loads(path.read_text("utf-8"))["failed"])
    except (OSError, ValueError, TypeError, KeyError):
        return 0


_CONFIGURED: Final = ("configuration",)
CHECKS: Final[tuple[Check[Device], ...]] = (
    Check("configuration", "the configuration file and the environment", _configuration),
    Check("package_version", "the installed version and the running agent's", _package_version, _CONFIGURED),
    Check("clock", "this machine's clock, and whether a time service keeps it right", _clock),
    Check("key_files", "modes and owners of the files with keys and tokens", _key_files, _CONFIGURED),
    Check("state_dir", "the state directory: writable, closed to others", _state_dir, _CONFIGURED),
    Check("state_dir_durable", "the file system under the state directory", _state_dir_durable, _CONFIGURED),
    Check("disk_space", "free space for the store", _disk_space, _CONFIGURED),
    Check("database", "the store: readable, how full, damaged before", _database, _CONFIGURED, timeout_s=30.0),
    Check("unit", "the unit: installed, enabled, active", _unit),
    Check("reboot_unit", f"{REBOOT_UNIT}, which the handler reboot needs", _reboot_unit, _CONFIGURED),
    Check("handlers", "each command handler", _handlers, _CONFIGURED, timeout_s=60.0),
    Check("sensors", "each configured sensor", _sensors, _CONFIGURED, timeout_s=60.0),
    Check("programs", "who may change the programs that handlers and sensors start", _programs, _CONFIGURED),
    Check("agent", "the agent's process, its parts and its starts", _agent, _CONFIGURED),
)
