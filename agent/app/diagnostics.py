"""A bundle of diagnostics: one tar.gz with what a person needs to help, and without secrets.

Each part is made as text, and each secret of this device that is found in it is masked. A bundle that still holds one
is not written.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

import yaml

from agent.app.starts import FILE_NAME as STARTS
from agent.app.status import AgentStatus
from agent.app.status_file import StatusFile
from agent.app.version import VERSION
from agent.config import AgentConfig
from agent.config.load import FOLDER as LAYERS
from agent.core.values import JsonObject
from agent.files import replace_file, sync_directory
from agent.handlers.base import HandlerRejected
from agent.handlers.maintenance import CollectDiagnostics
from agent.wire.secret import MASK, mask

FOLDER: Final = "diagnostics"
_NAME: Final = re.compile(r"diagnostics-(\d{6,})\.tar\.gz\Z")
_PART_CHARACTERS: Final = 512 * 1024
# Shorter ones would mask ordinary words; no key of the specification is as short.
_LEAST_SECRET_CHARACTERS: Final = 6
_SECRET_NAME: Final = re.compile(r"secret|token|passw|credential|api_?key|private", re.IGNORECASE)
_NAMES_A_PLACE: Final = ("_file", "_directory", "_dir", "_path")


def collect(
    config: AgentConfig,
    environ: Mapping[str, str],
    status: StatusFile | AgentStatus,
    lines: Callable[[], Sequence[str]],
    settings: CollectDiagnostics.Settings,
    folder: Path | None = None,
) -> JsonObject:
    """Write a bundle; its path, size, digest and a summary.

    Args:
        config: in force.
        environ: of the process; its values may be secrets.
        status: of the agent, with what its store holds.
        lines: the last lines of its log.
        settings: its limits.
        folder: where it goes, and nothing there is deleted; by default ``diagnostics`` in the state directory.

    Raises:
        HandlerRejected: it could not be written, or a secret was found in it.
    """
    secrets = secrets_of(config, environ)
    makers: dict[str, Callable[[], str]] = {
        "status.json": lambda: _json(asdict(status)),
        "configuration.yaml": lambda: yaml.safe_dump(
            _masked_values(config.model_dump(mode="json"), set()), sort_keys=False
        ),
        "starts.json": lambda: _json(_starts(config.state_dir)),
        "log.txt": lambda: "\n".join(lines()) + "\n",
        "system.json": lambda: _json(_system(config.state_dir)),
    }
    parts = {name: _masked(_made(make), secrets)[-_PART_CHARACTERS:] for name, make in makers.items()}
    content = _packed(parts)
    while len(content) > settings.max_bytes:
        largest = max(parts, key=lambda name: len(parts[name]))
        # The end of a log is what one wants to see.
        parts[largest] = f"[cut]\n{parts[largest][len(parts[largest]) // 2 :]}"
        content = _packed(parts)
    if any(secret in text for text in parts.values() for secret in secrets):
        raise HandlerRejected("secret_found", "a secret is still in it, so it was not written; report this as a bug")
    try:
        path = _stored(folder or config.state_dir / FOLDER, content, settings.keep if folder is None else None)
    except OSError as error:
        raise HandlerRejected("not_written", f"{error.filename or config.state_dir}: {error.strerror}") from error
    return {
        "path": str(path),
        "size_bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "summary": {"version": VERSION, "files": {name: len(text) for name, text in parts.items()}},
    }


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
    _masked_values(config.model_dump(mode="json"), plain)
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


def _masked_values(values: Any, found: set[str]) -> Any:
    """The values of a configuration, those masked whose name says that they are secret; ``found`` gets these."""
    if isinstance(values, dict):
        masked = {}
        for name, value in values.items():
            if isinstance(value, str) and _is_secret(str(name)):
                found.add(value)
                masked[name] = MASK
            else:
                masked[name] = _masked_values(value, found)
        return masked
    return [_masked_values(value, found) for value in values] if isinstance(values, list) else values


def _masked(text: str, secrets: list[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, MASK)
    return mask(text)


# --- the parts --------------------------------------------------------------------------------------------------------


def _made(make: Callable[[], str]) -> str:
    """A part that cannot be made says why: what is broken must not keep the rest from being seen."""
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - as said
        return f"could not be made: {type(error).__name__}: {error}\n"


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n"


def _starts(state_dir: Path) -> dict[str, Any]:
    """The counter of starts, and which layers of the configuration there are."""
    folder, counter = state_dir / LAYERS, state_dir / STARTS
    return {
        "layers": sorted(file.name for file in folder.iterdir()) if folder.is_dir() else [],
        "counter": json.loads(counter.read_text("utf-8")) if counter.exists() else None,
    }


def _system(state_dir: Path) -> dict[str, Any]:
    room = os.statvfs(state_dir)
    files = [file for file in state_dir.rglob("*") if file.is_file()]
    return {
        "agent": VERSION,
        "python": sys.version,
        "packages": sorted({f"{each.name} {each.version}" for each in distributions()}),
        "system": " ".join(platform.uname()),
        "time": time.time(),
        "memory": _lines_of(Path("/proc/meminfo"))[:5],
        "free_bytes": room.f_bavail * room.f_frsize,
        "free_files": room.f_favail,
        "state_files": {str(file.relative_to(state_dir)): file.stat().st_size for file in files},
    }


# --- the file ---------------------------------------------------------------------------------------------------------


def _packed(parts: Mapping[str, str]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for name, text in parts.items():
            content = text.encode("utf-8", "replace")
            entry = tarfile.TarInfo(f"diagnostics/{name}")
            entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o600
            tar.addfile(entry, io.BytesIO(content))
    return raw.getvalue()


def _stored(folder: Path, content: bytes, keep: int | None) -> Path:
    """Write it under the next number, and remove the oldest ones beyond ``keep``, if any."""
    folder.mkdir(mode=0o700, exist_ok=True)
    numbers = sorted(int(match[1]) for file in folder.iterdir() if (match := _NAME.fullmatch(file.name)))
    for number in [] if keep is None else numbers[: max(0, len(numbers) + 1 - keep)]:
        (folder / f"diagnostics-{number:06d}.tar.gz").unlink(missing_ok=True)
    path = folder / f"diagnostics-{(numbers[-1] if numbers else 0) + 1:06d}.tar.gz"
    replace_file(path, content, 0o600, durable=True)
    sync_directory(folder.parent)
    return path
