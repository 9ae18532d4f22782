"""The installation: configuration, Python, version, environment."""

from __future__ import annotations

import platform
import re
import stat
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from agent.app.version import VERSION
from agent.config.load import DEFAULT_PATH
from agent.doctor.findings import Check, Finding, cause_and_fix, failed, ok, skipped, warning
from agent.doctor.subject import Subject
from agent.errors import ConfigurationError
from agent.wire.secret import redact

_OLDEST: Final = (3, 11)
_COMMENT: Final = re.compile(r"(?m)(?:^|(?<=\s))#.*")
_WHOLE_KEY: Final = re.compile(r"(?:msk|dat)_\w{12,}")
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy")


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


def _config_file(subject: Subject) -> Finding:
    path = subject.loaded.path
    if path is None:
        return skipped("the configuration comes from the environment alone")
    mode = path.stat().st_mode
    seen = f"{path} has mode {stat.S_IMODE(mode):o}"
    if _shows_secret(path.read_text("utf-8", "replace")):
        cause = "it holds what looks like a key or a token, and a configuration is copied and shown"
        return failed(seen, cause, "put it alone into a file of mode 600, name that file in the section auth")
    if mode & (stat.S_IWGRP | stat.S_IWOTH):

        def mend() -> str:
            path.chmod(stat.S_IMODE(mode) & ~(stat.S_IWGRP | stat.S_IWOTH))
            return f"took the right to write {path} from everybody but its owner"

        cause = "others than its owner may change it, and so which programs the agent runs"
        return failed(seen, cause, f"chmod go-w {path}", mend)
    return ok(f"{seen} and holds no secret")


def _shows_secret(text: str) -> bool:
    """Whether a value looks like a key or a token; in comments, which explain what keys are, only a whole key does."""
    values = _COMMENT.sub("", text)
    return redact(values) != values or _WHOLE_KEY.search(text) is not None


def _proxy_environment(subject: Subject) -> Finding:
    names = sorted(name for name in subject.environ if name.lower() in _PROXIES and subject.environ[name])
    if not names:
        return ok("no proxy is set in the environment")
    cause = "the agent never uses a proxy from the environment, since it would get the keys too"
    fix = "unset it for the agent; where only a proxy leads out, put the gateway behind it (docs/gateway.md)"
    return warning(f"{', '.join(names)} is set", cause, fix)


def _python_version(_subject: Subject) -> Finding:
    seen = f"Python {platform.python_version()} at {sys.executable}"
    if sys.version_info < _OLDEST:
        return failed(seen, "the agent needs Python 3.11", "make the virtual environment with python3.11 or newer")
    return ok(seen)


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
    Check(
        "config_file", f"mode and content of the configuration file ({DEFAULT_PATH})", _config_file, ("configuration",)
    ),
    Check("python_version", "the Python that runs this", _python_version),
    Check("package_version", "the installed version and the running agent's", _package_version, ("configuration",)),
    Check("proxy_environment", "http_proxy and its kin in the environment", _proxy_environment),
)
