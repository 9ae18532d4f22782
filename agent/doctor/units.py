"""systemd: the unit, its credentials, and the unit that may reboot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agent.doctor.findings import Check, Finding, failed, ok, skipped, warning
from agent.doctor.installed import InstalledProgram
from agent.doctor.subject import REBOOT, Subject

_NO_SYSTEMD: Final = "this machine was not booted with systemd"

_RUNS: Final = frozenset({"active", "reloading"})
_STARTED_AT_BOOT: Final = frozenset({"enabled", "enabled-runtime", "static", "generated"})


def _unit(subject: InstalledProgram) -> Finding:
    if not subject.has_systemd:
        return skipped(_NO_SYSTEMD)
    unit = subject.unit
    if not unit:
        return skipped("systemctl does not answer")
    if unit.get("LoadState") != "loaded":
        cause = "without a unit nobody starts it at boot and after a crash"
        fix = f"copy systemd/{subject.unit_name} to /etc/systemd/system, then: systemctl enable --now {subject.name}"
        return warning(f"{subject.unit_name} is {unit.get('LoadState', 'not there')}", cause, fix)
    state = f"{unit.get('ActiveState')} ({unit.get('SubState')})"
    seen = f"{unit.get('FragmentPath')}: {unit.get('UnitFileState')}, {state}"
    if unit.get("ActiveState") not in _RUNS:
        cause = f"it does not run; the last run ended with {unit.get('Result', 'no result')}"
        start = "systemctl start" if unit.get("UnitFileState") in _STARTED_AT_BOOT else "systemctl enable --now"
        return failed(seen, cause, f"journalctl -u {subject.name} -n 50 says why; then: {start} {subject.name}")
    if unit.get("UnitFileState") not in _STARTED_AT_BOOT:
        return warning(seen, "it runs now, but is not started at boot", f"systemctl enable {subject.name}")
    return ok(seen)


def _unit_text(subject: InstalledProgram) -> Finding:
    if not subject.has_systemd:
        return skipped(_NO_SYSTEMD)
    if not subject.unit_text:
        return skipped("there is no unit that can be read")
    return ok("they can be read")


def _unit_credentials(subject: InstalledProgram) -> Finding:
    given = subject.unit_credentials
    if not given:
        return ok("the unit hands over no credentials: the files are read that the configuration names")
    names = ", ".join(credential.name for credential in given)
    there = {credential.name for credential in given if not credential.paths or subject.credential_files(credential)}
    for credential in given:
        if credential.name not in there and not credential.is_optional:
            name, path = credential.name, subject.path(credential.paths[0])
            fix = (
                f"create it (mode 640, root, the group of the program's user), or take LoadCredential={name} out in a "
                f"drop-in: systemctl edit {subject.name}"
            )
            cause = f"{path} does not exist, and systemd does not start the unit without it"
            return failed(f"it hands over {names}", cause, fix)
    without = [credential.name for credential in given if credential.name not in there]
    if without:
        return ok(f"it hands over {', '.join(sorted(there)) or 'nothing'}; there is no {', no '.join(without)}")
    return ok(f"it hands over {names}, and the files are there")


def _reboot_unit(subject: Subject) -> Finding:
    if not subject.has_systemd:
        return skipped(_NO_SYSTEMD)
    handler = subject.config.commands.handlers.get("reboot")
    if (handler is not None and not handler.enabled) or "reboot" in subject.config.executables:
        return skipped("the handler reboot is not in use")
    return judge_reboot_unit(subject.unit_of(REBOOT))


def judge_reboot_unit(unit: Mapping[str, str]) -> Finding:
    """Whether a request for a reboot is taken, by the properties of the timer that allows it."""
    if unit.get("LoadState") == "loaded" and unit.get("ActiveState") == "active":
        return ok(f"{REBOOT} is active")
    cause = "the agent's sandbox may not reboot the device; this unit does, and it is not active"
    seen = f"{REBOOT} is {unit.get('LoadState', 'not there')}, {unit.get('ActiveState', 'inactive')}"
    fix = f"install its units, systemctl enable --now {REBOOT}; or set commands.handlers.reboot.enabled: false"
    return warning(seen, cause, fix)


UNIT_CHECKS: Final = (
    Check("unit", "the unit: installed, enabled, active", _unit),
    # What the files say holds also for a unit that does not run.
    Check("unit_text", "the unit's file and drop-ins can be read", _unit_text),
    Check("unit_credentials", "the credentials that the unit hands over", _unit_credentials, ("unit_text",)),
)
"""Those of any installed program."""

CHECKS: Final = (
    *UNIT_CHECKS,
    Check("reboot_unit", f"{REBOOT}, which the handler reboot needs", _reboot_unit, ("configuration",), timeout_s=60.0),
)
