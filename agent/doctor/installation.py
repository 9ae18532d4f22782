"""The installed unit against the configuration: its program, user and environment, and what its sandbox closes."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from agent.doctor.findings import Check, Finding, failed, ok, skipped, warning
from agent.doctor.installed import InstalledProgram, words_of
from agent.doctor.unit_files import settings_of

_ALWAYS_WRITABLE: Final = ("/dev", "/proc", "/sys", "/tmp", "/var/tmp")  # noqa: S108 - what ProtectSystem= leaves out
_HOMES: Final = ("/home", "/root", "/run/user")
_YES: Final = frozenset({"yes", "true", "on", "1"})
_INTERNET: Final = frozenset({"AF_INET", "AF_INET6"})
_PREFIXES: Final = "-@:+!|"


def _program(subject: InstalledProgram) -> Finding:
    argv = _command(subject)
    if not argv:
        return failed(
            "the unit has no ExecStart", "systemd has nothing to start", f"copy systemd/{subject.unit_name} anew"
        )
    program = subject.path(argv[0])
    if not program.exists():
        cause = "the unit starts a program that is not there: systemd ends with 203/EXEC"
        return failed(argv[0], cause, f"install it there, or correct ExecStart=: {subject.edit}")
    if not os.access(program, os.X_OK):
        cause = "the program that the unit starts is not executable: systemd ends with 203/EXEC"
        return failed(argv[0], cause, f"chmod 755 {argv[0]}")
    if subject.root == Path("/") and Path(argv[0]).resolve().parent != Path(sys.executable).parent.resolve():
        own = Path(sys.prefix, "bin", Path(argv[0]).name)
        if own.exists() and own.resolve() != Path(argv[0]).resolve():
            cause = f"this doctor is another installation ({sys.prefix}), so what it finds may not hold for the service"
            return warning(f"the unit starts {argv[0]}", cause, f"run {argv[0]} {subject.doctor.partition(' ')[2]}")
    return ok(f"the unit starts {argv[0]}")


def _user(subject: InstalledProgram) -> Finding:
    name = subject.unit.get("User")
    if not name:
        cause = "it runs as root: whoever gets hold of it, or a mistake in a plug-in, has all of the machine"
        return warning(
            "the unit names no User=", cause, f"take User={subject.name} over from systemd/{subject.unit_name}"
        )
    if subject.user is None:
        cause = f"there is no user {name}: systemd ends with 217/USER"
        fix = f"cp systemd/sysusers.d/{subject.name}.conf /usr/lib/sysusers.d/ && systemd-sysusers"
        return failed(f"the unit runs as {name}", cause, fix)
    return ok(f"the unit runs as {name}")


def _restart(subject: InstalledProgram) -> Finding:
    found = settings_of(subject.unit_text)
    restart = found.get("Restart", ["no"])[-1]
    if restart != "always":
        cause = "after a crash, or a restart by command, it does not come back"
        return warning(f"Restart={restart}", cause, f"Restart=always in a drop-in: {subject.edit}")
    limits = settings_of(subject.unit_text, "Unit").get("StartLimitIntervalSec", [""])
    if limits[-1] != "0":
        cause = "after some starts in a row systemd gives it up for good"
        return warning(
            "Restart=always, with a limit of starts", cause, f"StartLimitIntervalSec=0 in [Unit]: {subject.edit}"
        )
    return ok("it is started again, without a limit")


def _config(subject: InstalledProgram) -> Finding:
    argv, looked_at = _command(subject), subject.config_path
    named = next((argv[at + 1] for at, word in enumerate(argv[:-1]) if word == "--config"), "")
    named = named or next((word.partition("=")[2] for word in argv if word.startswith("--config=")), "")
    if looked_at is None or not named:
        return skipped("the unit or this doctor goes by the environment")
    if subject.path(named).resolve() != looked_at.resolve():
        cause = f"the service reads {named}, and this doctor looked at {looked_at}"
        return warning("two configurations", cause, f"{subject.doctor} --config {named}")
    return ok(f"the service reads {named}, as this doctor did")


def _environment(subject: InstalledProgram) -> Finding:
    found = settings_of(subject.unit_text)
    for name in found.get("EnvironmentFile", []):
        path = name.removeprefix("-")
        if name == path and not subject.path(path).exists():
            cause = f"{path} does not exist, and systemd does not start the unit without it"
            return failed("EnvironmentFile=", cause, f"create it, or write EnvironmentFile=-{path}: {subject.edit}")
    variables = [word for line in found.get("Environment", []) for word in _words(line)]
    own = sorted(word.partition("=")[0] for word in variables if word.startswith(subject.variables))
    other = [name for name in own if subject.environ.get(name) is None]
    if other:
        cause = "they go before the configuration file in the service, and this doctor did not see them"
        return warning(f"the unit sets {', '.join(other)}", cause, "put them into the configuration file")
    return ok("the unit sets nothing that goes before the configuration")


def _state_owner(subject: InstalledProgram) -> Finding:
    if subject.user is None:
        return skipped("the unit's user is not known")
    state_dir = subject.config.state_dir
    try:
        strange = [path for path in (state_dir, *state_dir.rglob("*")) if path.lstat().st_uid != subject.user[0]]
    except OSError as error:
        return skipped(f"{state_dir} cannot be read: {words_of(error)}")
    if strange:
        user = subject.unit.get("User")
        cause = f"it belongs to another user than {user}, perhaps since it was once started by hand as root"
        return failed(f"{strange[0]} ({len(strange)} in all)", cause, f"chown -R {user}: {state_dir}")
    return ok(f"all of {state_dir} belongs to the user of the unit")


def _sandbox_state(subject: InstalledProgram) -> Finding:
    found = settings_of(subject.unit_text)
    state_dir = str(subject.config.state_dir)
    if found.get("ProtectSystem", [""])[-1] != "strict":
        return ok("the unit leaves the file system writable")
    open_to = [f"/var/lib/{word}" for line in found.get("StateDirectory", []) for word in line.split()]
    open_to += [word.lstrip("-+") for line in found.get("ReadWritePaths", []) for word in line.split()]
    if any(_is_below(state_dir, place) for place in (*open_to, *_ALWAYS_WRITABLE)):
        return ok(f"the unit may write {state_dir}")
    cause = "the sandbox of the unit makes it read-only (ProtectSystem=strict): the program waits for it without an end"
    return failed(f"state_dir is {state_dir}", cause, f"ReadWritePaths={state_dir} in a drop-in: {subject.edit}")


def _sandbox_devices(subject: InstalledProgram) -> Finding:
    wanted = sorted({path for path in _paths(subject) if _is_below(path, "/dev") and path not in _HARMLESS})
    if not wanted:
        return ok("nothing in the configuration names a device file")
    found = settings_of(subject.unit_text)
    if found.get("PrivateDevices", ["no"])[-1] in _YES:
        cause = "the sandbox of the unit hides all devices (PrivateDevices=yes), though root sees them"
        return failed(", ".join(wanted), cause, f"PrivateDevices=no and DeviceAllow={wanted[0]} rw: {subject.edit}")
    allowed = [line.split()[0] for line in found.get("DeviceAllow", []) if line]
    closed = [path for path in wanted if path not in allowed and not any(each.startswith("char-") for each in allowed)]
    if found.get("DevicePolicy", ["auto"])[-1] in {"closed", "strict"} and closed:
        cause = "the unit allows no access to it (DevicePolicy=closed)"
        return failed(", ".join(closed), cause, f"DeviceAllow={closed[0]} rw in a drop-in: {subject.edit}")
    return ok(f"the unit allows {', '.join(wanted)}")


def _sandbox_home(subject: InstalledProgram) -> Finding:
    if settings_of(subject.unit_text).get("ProtectHome", ["no"])[-1] not in _YES:
        return ok("the unit sees the users' directories")
    hidden = sorted({path for path in _paths(subject) if any(_is_below(path, home) for home in _HOMES)})
    if hidden:
        cause = "the sandbox of the unit hides the users' directories (ProtectHome=yes), though root sees them"
        return failed(
            ", ".join(hidden), cause, f"move it, such as programs to /usr/local/bin and keys to /etc/{subject.name}"
        )
    return ok("nothing in the configuration lies in a user's directory")


def _sandbox_network(subject: InstalledProgram) -> Finding:
    found = settings_of(subject.unit_text)
    families = {word for line in found.get("RestrictAddressFamilies", []) for word in line.split()}
    if families and not any(word.startswith("~") for word in families) and not families & _INTERNET:
        seen, fix = f"RestrictAddressFamilies={' '.join(sorted(families))}", "add AF_INET AF_INET6"
    elif found.get("PrivateNetwork", ["no"])[-1] in _YES:
        seen, fix = "PrivateNetwork=yes", "PrivateNetwork=no"
    elif found.get("IPAddressDeny", [""])[-1] == "any" and not found.get("IPAddressAllow"):
        seen, fix = "IPAddressDeny=any", "IPAddressAllow= with the address of the service"
    else:
        return ok("the unit leaves the network open")
    cause = "the sandbox of the unit closes the network, though this doctor may reach the service"
    return failed(seen, cause, f"{fix} in a drop-in: {subject.edit}")


_HARMLESS: Final = frozenset({"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"})


def _command(subject: InstalledProgram) -> list[str]:
    lines = settings_of(subject.unit_text).get("ExecStart", [])
    words = _words(lines[-1]) if lines else []
    return [words[0].lstrip(_PREFIXES), *words[1:]] if words else []


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # an open quote
        return line.split()


def _is_below(path: str, place: str) -> bool:
    return path == place or path.startswith(f"{place.rstrip('/')}/")


def _paths(subject: InstalledProgram) -> Iterator[str]:
    """Every absolute path that the configuration names, but for the state directory."""
    return _strings(subject.config.model_dump(mode="json", exclude={"state_dir"}))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str) and value.startswith("/"):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)


_BOTH: Final = ("configuration", "unit_text")
CHECKS: Final = (
    Check("unit_program", "the program that the unit starts", _program, ("unit_text",)),
    Check("unit_user", "the user as whom the unit runs", _user, ("unit_text",)),
    Check("unit_restart", "whether it is started again after a crash", _restart, ("unit_text",)),
    Check("unit_config", "which configuration the unit reads", _config, _BOTH),
    Check("unit_environment", "variables that the unit sets", _environment, ("unit_text",)),
    Check("state_owner", "owners of all files in the state directory", _state_owner, _BOTH),
    Check("sandbox_state", "whether the unit may write the state directory", _sandbox_state, _BOTH),
    Check("sandbox_devices", "device files that the configuration names", _sandbox_devices, _BOTH),
    Check("sandbox_home", "files in users' directories that the configuration names", _sandbox_home, _BOTH),
    Check("sandbox_network", "whether the unit leaves the network open", _sandbox_network, ("unit_text",)),
)
