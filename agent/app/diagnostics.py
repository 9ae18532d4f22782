"""A bundle of diagnostics: one JSON document, packed, with what a person needs to help, and without secrets.

Each secret of this device that is found in it is masked. A bundle that still holds one is not written.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

from agent.app.starts import FILE_NAME as STARTS
from agent.app.status import AgentStatus, StatusFile
from agent.app.version import VERSION
from agent.config import AgentConfig
from agent.config.load import FOLDER as LAYERS
from agent.core.values import JsonObject
from agent.files import replace_file
from agent.handlers.base import HandlerRejected
from agent.wire.secret import MASK, mask

FILE_NAME: Final = "diagnostics.json.gz"
_LINE_CHARACTERS: Final = 2000
# Shorter ones would mask ordinary words; no key of the specification is as short.
_LEAST_SECRET_CHARACTERS: Final = 6
_SECRET_NAME: Final = re.compile(r"secret|token|passw|credential|api_?key|private", re.IGNORECASE)
_NAMES_A_PLACE: Final = ("_file", "_directory", "_dir", "_path")


def collect(
    config: AgentConfig,
    environ: Mapping[str, str],
    status: StatusFile | AgentStatus,
    lines: Callable[[], Sequence[str]],
    folder: Path | None = None,
) -> JsonObject:
    """Write a bundle in place of the one before; its path, size and digest.

    Args:
        config: in force.
        environ: of the process; its values may be secrets.
        status: of the agent, with what its store holds.
        lines: the last lines of its log.
        folder: where it goes; by default the state directory.

    Raises:
        HandlerRejected: it could not be written, or a secret was found in it.
    """
    secrets = secrets_of(config, environ)
    makers: dict[str, Callable[[], Any]] = {
        "status": lambda: asdict(status),
        "configuration": lambda: config.model_dump(mode="json"),
        "starts": lambda: _starts(config.state_dir),
        "log": lambda: [line[:_LINE_CHARACTERS] for line in lines()],
        "system": lambda: _system(config.state_dir),
    }
    bundle = {name: _masked(_made(make), secrets) for name, make in makers.items()}
    text = json.dumps(bundle, indent=1, ensure_ascii=False, default=str)
    if any(secret in text for secret in secrets):
        raise HandlerRejected("secret_found", "a secret is still in it, so it was not written; report this as a bug")
    path, content = (folder or config.state_dir) / FILE_NAME, gzip.compress(text.encode("utf-8", "replace"))
    try:
        replace_file(path, content, 0o600, durable=True)
    except OSError as error:
        raise HandlerRejected("not_written", f"{error.filename or path}: {error.strerror}") from error
    return {"path": str(path), "size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def journal_lines() -> list[str]:
    """The agent's last lines in the journal, as another process sees them."""
    program = shutil.which("journalctl")
    if program is None:
        return ["there is no journalctl here; the log is where the agent's standard error goes"]
    words = [program, "--unit=device-agent", "--lines=400", "--no-pager", "--output=short-iso"]
    found = subprocess.run(words, capture_output=True, timeout=20, check=False)
    return (found.stdout or found.stderr).decode("utf-8", "replace").splitlines()


# --- secrets ----------------------------------------------------------------------------------------------------------


def secrets_of(config: AgentConfig, environ: Mapping[str, str]) -> list[str]:
    """Every secret that this device holds, as text may have it; the longest first."""
    files = [config.auth.api_key_file, config.auth.secret_key_file, config.auth.token_file]
    if config.mqtt is not None:
        files.append(config.mqtt.key_file)
    directory = environ.get("CREDENTIALS_DIRECTORY")
    if directory and Path(directory).is_dir():
        files += Path(directory).iterdir()
    plain = {line.strip() for file in files if file is not None for line in _lines_of(file)}
    plain |= {value for name, value in environ.items() if _is_secret(name)}
    plain |= set(_secret_members(config.model_dump(mode="json")))
    plain = {text for text in plain if len(text) >= _LEAST_SECRET_CHARACTERS and not text.startswith("-----")}
    return sorted(plain | {json.dumps(text, ensure_ascii=False)[1:-1] for text in plain}, key=len, reverse=True)


def _lines_of(file: Path) -> list[str]:
    try:
        return file.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []


def _is_secret(name: str) -> bool:
    """Whether a variable or a key of this name holds a secret itself, and not the path of its file."""
    return bool(_SECRET_NAME.search(name)) and not name.lower().endswith(_NAMES_A_PLACE)


def _secret_members(value: Any, name: str = "") -> list[str]:
    """The texts below a value whose own name says that they are secret."""
    if isinstance(value, dict):
        return [text for key, member in value.items() for text in _secret_members(member, str(key))]
    if isinstance(value, list):
        return [text for member in value for text in _secret_members(member)]
    return [value] if isinstance(value, str) and _is_secret(name) else []


def _masked(value: Any, secrets: list[str]) -> Any:
    if isinstance(value, dict):
        return {_masked(str(name), secrets): _masked(member, secrets) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(member, secrets) for member in value]
    if not isinstance(value, str):
        return value
    for secret in secrets:
        value = value.replace(secret, MASK)
    return mask(value)


# --- the parts --------------------------------------------------------------------------------------------------------


def _made(make: Callable[[], Any]) -> Any:
    """A part that cannot be made says why: what is broken must not keep the rest from being seen."""
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - as said
        return f"could not be made: {type(error).__name__}: {error}"


def _starts(state_dir: Path) -> dict[str, Any]:
    """The counter of starts, without the texts of a configuration on trial, which may hold secrets; and the layers."""
    folder, counter = state_dir / LAYERS, state_dir / STARTS
    found = json.loads(counter.read_text("utf-8")) if counter.exists() else {}
    trial = {name: value for name, value in (found.get("trial") or {}).items() if name not in {"layer", "former"}}
    layers = sorted(file.name for file in folder.iterdir()) if folder.is_dir() else []
    return {**found, "trial": trial, "layers": layers}


def _system(state_dir: Path) -> dict[str, Any]:
    room = os.statvfs(state_dir)
    files = [file for file in state_dir.rglob("*") if file.is_file()]
    return {
        "agent": VERSION,
        "python": sys.version,
        "packages": sorted({f"{each.name} {each.version}" for each in distributions()}),
        "system": " ".join(platform.uname()),
        "memory": _lines_of(Path("/proc/meminfo"))[:5],
        "free_bytes": room.f_bavail * room.f_frsize,
        "state_files": {str(file.relative_to(state_dir)): file.stat().st_size for file in files},
    }
