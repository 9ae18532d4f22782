"""The checks that look at this machine alone."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from agent.app.lock import holder_of
from agent.app.plugins import is_usable, load_handlers, try_sensors
from agent.app.version import VERSION
from agent.core.timekeeping import is_plausible
from agent.doctor.device import UNIT, Device
from agent.doctor.findings import Check, Finding, failed, ok, skipped, warning
from agent.errors import ConfigurationError
from agent.plugins import PluginStatus
from agent.store.sqlite import FILE_NAME, damaged_copies

SET_CLOCK: Final = "let the network set it: timedatectl set-ntp true, or install systemd-timesyncd or chrony"
REBOOT_UNIT: Final = "device-agent-reboot.timer"

_LATEST_S: Final = 4_102_444_800.0  # 2100-01-01: no device of today shows that rightly
_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
_LEAST_BYTES: Final = 16 * 1024 * 1024
_MB: Final = 1_000_000
_NEARLY: Final = 0.9
_STARTED_AT_BOOT: Final = frozenset({"enabled", "enabled-runtime", "static", "generated"})


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
    seen = f"it shows {shown(wall_s)}"
    if not is_plausible(wall_s) or wall_s > _LATEST_S:
        cause = "it was never set since the start (a board without a battery, no time from the network yet), or wrong"
        yield failed(seen, cause, SET_CLOCK)
    elif not device.is_synchronized(device.path("/run/systemd/timesync/synchronized")):
        cause = "no time service has set it since the start, or its servers (UDP port 123) cannot be reached"
        yield warning(f"{seen} and runs by itself", cause, SET_CLOCK)
    else:
        yield ok(f"{seen}, and a time service keeps it in step with the network")


def shown(wall_s: float) -> str:
    """A moment as a person reads it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall_s))


# --- files ------------------------------------------------------------------------------------------------------------


def _key_files(device: Device) -> Iterator[Finding]:
    auth, mqtt = device.config.auth, device.config.mqtt
    names = ("token",) if auth.mode == "bearer" else ("api_key", "secret_key")
    files = [getattr(auth, f"{name}_file") for name in names]
    files += [Path(path) for path in device.handed_over.values() if path]
    files += [] if mqtt is None else [mqtt.key_file]
    paths = list(dict.fromkeys(path for path in files if path is not None and path.is_file()))
    loose = [path for path in paths if _mode(path) & (stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP)]
    for path in loose:
        is_open = bool(_mode(path) & stat.S_IRWXO)
        cause = f"{'everybody on this machine' if is_open else 'its group'} may open or change it"
        fix = f"chmod 600 {path} (640 where the agent reads it by its group)"
        yield (failed if is_open else warning)(f"{path} has mode {_mode(path):o}", cause, fix)
    try:
        device.credentials  # noqa: B018 - reading them is the check
    except ConfigurationError as error:
        if all(_is_for_the_service_alone(device.handed_over.get(name)) for name in names):
            yield skipped("the unit hands them over to the service alone: run this as root, or while the agent runs")
        elif not any(_mode(path) & stat.S_IRWXO for path in loose):  # reading them finds no more than that
            yield from (failed("the credentials cannot be used", sentence) for sentence in error.faults)
    else:
        if not loose:
            yield ok(f"{', '.join(map(str, paths)) or 'the credentials'}: nobody else can open them")


def _is_for_the_service_alone(handed_over: str | None) -> bool:
    """Whether the unit hands over a credential whose file is there and cannot be read here; empty: it is encrypted."""
    if not handed_over:
        return handed_over is not None
    return Path(handed_over).exists() and not os.access(handed_over, os.R_OK)


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
    """What lies below the state directory: does it last, and is there room?"""
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


# --- plug-ins and the agent that runs ---------------------------------------------------------------------------------


def _handlers(device: Device) -> Iterator[Finding]:
    running = None if device.loads_plugins else device.running
    if running is not None:
        states = {name[8:]: text for name, text in running.plugins.items() if name.startswith("handler:")}
        usable = sorted(name for name, text in states.items() if text.startswith(PluginStatus.READY))
        good = (PluginStatus.READY, PluginStatus.DISABLED)
        faults = {name: text for name, text in states.items() if not text.startswith(good)}
    else:
        listing = load_handlers(device.config).listing
        usable = sorted(info.name for info in listing if info.status is PluginStatus.READY)
        faults = {info.name: f"{info.status}: {info.reason}" for info in listing if not is_usable(info)}
    how = "each loaded once" if running is None else "as the running agent reports"
    yield ok(f"{len(usable)} can be used, {how}: {', '.join(usable)}")
    for name, why in faults.items():
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
    unit = device.unit()
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
    if not at_boot:
        yield warning(seen, "it runs now, but is not started at boot", "systemctl enable device-agent")
    else:
        yield ok(seen)
    handler = device.config.commands.handlers.get("reboot")
    is_used = (handler is None or handler.enabled) and "reboot" not in device.config.executables
    timer = device.unit(REBOOT_UNIT)
    if is_used and (timer.get("LoadState"), timer.get("ActiveState")) != ("loaded", "active"):
        cause = "the handler reboot needs it, since the agent's sandbox may not reboot the device"
        fix = f"systemctl enable --now {REBOOT_UNIT}; or set commands.handlers.reboot.enabled: false"
        yield warning(f"{REBOOT_UNIT} is not active", cause, fix)


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
"""What to do about a part of the agent that is not well."""
_CONFIGURED: Final = ("configuration",)
CHECKS: Final[tuple[Check[Device], ...]] = (
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
)
