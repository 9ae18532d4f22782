"""The installation: configuration and version."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final

from agent.app.version import VERSION
from agent.doctor.findings import Check, Finding, cause_and_fix, failed, ok, warning
from agent.doctor.subject import Subject
from agent.errors import ConfigurationError


def _configuration(subject: Subject) -> Finding:
    try:
        loaded = subject.loaded
    except ConfigurationError as error:
        first, *others = error.faults
        cause, fix = cause_and_fix(first)
        more = f" (and {len(others)} more faults: device-agent check lists them)" if others else ""
        return failed(error.source, cause, f"{fix}{more}")
    if loaded.layer_fault:
        cause, fix = cause_and_fix(loaded.layer_fault)
        return warning("what a command changed in the configuration is left out", cause, fix)
    count = len(loaded.variables)
    variables = f", with {count} environment variable{'s' * (count > 1)} over it" if count else ""
    return ok(f"{loaded.path or 'the environment'} is whole and consistent{variables}")


def _package_version(subject: Subject) -> Finding:
    try:
        installed = version("device-agent")
    except PackageNotFoundError:
        installed = VERSION
    if installed != VERSION:
        cause = f"the program says {VERSION} and its package {installed}: two installations are mixed"
        return failed(f"version {VERSION}", cause, "install device-agent again into an empty virtual environment")
    status = subject.status
    if status.state != "running" or status.last_status is None:
        return ok(f"version {VERSION}; no agent runs to compare it with")
    if status.last_status.version != VERSION:
        cause = f"the agent that runs is version {status.last_status.version}: it was started before the update"
        return warning(f"version {VERSION} is installed", cause, "systemctl restart device-agent")
    return ok(f"version {VERSION}, and the agent that runs is the same")


CHECKS: Final = (
    Check("configuration", "the configuration file and the environment", _configuration),
    Check("package_version", "the installed version and the running agent's", _package_version, ("configuration",)),
)
