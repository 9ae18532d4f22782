"""A bundle of diagnostics: one tar.gz below the state directory with what a person needs, and without secrets.

Each part is made as text, bounded, and searched for the secrets of this very device before it goes in: what is found
is masked, and the finished bundle is searched once more. One that still holds a secret is not written.
"""

from __future__ import annotations

import gzip
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
import threading
import time
import traceback
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import yaml

from agent.app.start_counter import FILE_NAME as STARTS
from agent.app.status import read_agent_status
from agent.app.status_file import AgentView, read_status, status_path
from agent.app.version import VERSION
from agent.config import AgentConfig, LoadedConfig
from agent.config.layer import FOLDER as LAYERS
from agent.core.values import JsonObject
from agent.files import replace_file, sync_directory
from agent.handlers.upkeep import Bundle, UpkeepRefused
from agent.plugins import PluginInfo
from agent.wire.secret import MASK, redact

FOLDER: Final = "diagnostics"
_UNITS_STATUS: Final = "/run/device-agent/status.json"

_NAME: Final = re.compile(r"diagnostics-(\d{6,})\.tar\.gz\Z")
_MOST_PART_BYTES: Final = 512 * 1024
_MOST_SECRET_FILE_BYTES: Final = 64 * 1024
# Shorter ones would mask ordinary words; no key of the specification is as short.
_LEAST_SECRET_CHARACTERS: Final = 6
_SECRET_NAME: Final = re.compile(r"secret|token|passw|credential|api_?key|private", re.IGNORECASE)
_NAMES_A_PLACE: Final = ("_FILE", "_DIRECTORY", "_DIR", "_PATH")
_PROC: Final = ("meminfo", "loadavg", "uptime", "stat", "diskstats", "net/dev", "self/status", "self/limits", "self/io")


def collect(view: AgentView, bundle: Bundle, folder: Path | None = None) -> JsonObject:
    """Write a bundle; its path, size, digest and a summary.

    Args:
        view: what there is to see.
        bundle: its bounds.
        folder: where it goes; by default ``diagnostics`` in the state directory.

    Raises:
        UpkeepRefused: it could not be written, is too large, or a secret was found in it.
    """
    config = view.config()
    secrets = secrets_of(config, view.environ)
    parts = {name: _masked(_told(make), secrets) for name, make in _parts(view).items()}
    content = _packed(parts)
    while len(content) > bundle.max_bytes:
        largest = max(parts, key=lambda name: len(parts[name]))
        if len(parts[largest]) < 1024:
            raise UpkeepRefused(
                "too_large", f"it takes {len(content)} bytes; raise max_bytes in the handler's settings"
            )
        # The end of a log is what one wants to see.
        parts[largest] = b"[cut]\n" + parts[largest][len(parts[largest]) // 2 :]
        content = _packed(parts)
    if any(secret in text for text in parts.values() for secret in secrets):
        raise UpkeepRefused("secret_found", "a secret is still in it, so it was not written; report this as a bug")
    try:
        path = _stored(folder or config.state_dir / FOLDER, content, bundle)
    except OSError as error:
        raise UpkeepRefused("not_written", f"{error.filename or config.state_dir}: {error.strerror}") from error
    return {
        "path": str(path),
        "size_bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "summary": _summary(view, parts),
    }


def view_from_outside(
    loaded: LoadedConfig, environ: Mapping[str, str], plugins: Callable[[], Sequence[PluginInfo]]
) -> AgentView:
    """What another process sees of the agent: its last status, and its lines in the journal if they may be read."""
    status = read_status(status_path(loaded.config.state_dir, environ)) or read_status(Path(_UNITS_STATUS))
    parts = {} if status is None else status.parts
    mode = parts.get("mode")
    return AgentView(
        path=loaded.path,
        environ=environ,
        config=lambda: loaded.config,
        parts=lambda: parts,
        lines=_journal_lines,
        store=lambda: read_agent_status(loaded.config, environ).store,
        plugins=plugins,
        mode="normal" if mode is None else f"{mode.state}: {mode.detail}",
    )


def _journal_lines() -> list[str]:
    program = shutil.which("journalctl")
    if program is None:
        return ["there is no journalctl here; the log is where the agent's standard error goes"]
    found = subprocess.run(
        [program, "--unit=device-agent", "--lines=400", "--no-pager", "--output=short-iso"],
        capture_output=True,
        timeout=20,
        check=False,
    )
    return (found.stdout or found.stderr).decode("utf-8", "replace").splitlines()


def secrets_of(config: AgentConfig, environ: Mapping[str, str]) -> list[bytes]:
    """Every secret that this device holds, in each spelling that a text may have it; the longest first."""
    auth = config.auth
    files = [auth.api_key_file, auth.secret_key_file, auth.token_file]
    if config.mqtt is not None:
        files.append(config.mqtt.key_file)
    directory = environ.get("CREDENTIALS_DIRECTORY")
    if directory and Path(directory).is_dir():
        files += Path(directory).iterdir()
    plain: set[str] = set()
    for file in files:
        if file is not None:
            plain |= _secrets_in(file)
    plain |= {
        value for name, value in environ.items() if _SECRET_NAME.search(name) and not name.endswith(_NAMES_A_PLACE)
    }
    plain |= set(_named_secrets(config.model_dump(mode="json", exclude={"auth", "mqtt"})))
    found: set[bytes] = set()
    for text in plain:
        if len(text) >= _LEAST_SECRET_CHARACTERS:
            found |= _spellings(text)
    return sorted(found, key=len, reverse=True)


def _secrets_in(file: Path) -> set[str]:
    try:
        with file.open("rb") as opened:
            text = opened.read(_MOST_SECRET_FILE_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return set()
    try:
        members = json.loads(text)
    except ValueError:
        # A PEM file's lines would each give the key away.
        return {line for line in (text, *text.splitlines()) if not line.startswith("-----")}
    if not isinstance(members, dict):
        return {text}
    return {value for name, value in members.items() if isinstance(value, str) and _SECRET_NAME.search(name)}


def _named_secrets(values: Any) -> list[str]:
    """The values of members whose name says that they are secret, such as in an executable's environment."""
    found: list[str] = []
    if isinstance(values, dict):
        for name, value in values.items():
            if isinstance(value, str) and _SECRET_NAME.search(str(name)) and not str(name).endswith("_file"):
                found.append(value)
            else:
                found += _named_secrets(value)
    elif isinstance(values, list):
        for value in values:
            found += _named_secrets(value)
    return found


def _spellings(text: str) -> set[bytes]:
    raw = text.encode()
    return {
        raw,
        json.dumps(text)[1:-1].encode(),
        repr(text)[1:-1].encode(),
        quote(text, safe="").encode(),
        b64encode(raw).rstrip(b"="),
        urlsafe_b64encode(raw).rstrip(b"="),
        raw.hex().encode(),
    }


def _masked(text: str, secrets: list[bytes]) -> bytes:
    content = redact(text).encode("utf-8", "replace")
    for secret in secrets:
        content = content.replace(secret, MASK.encode())
    return content[-_MOST_PART_BYTES:]


# --- the parts ------------------------------------------------------------------------------------------------------


def _parts(view: AgentView) -> dict[str, Callable[[], str]]:
    config = view.config()
    return {
        "agent.json": lambda: _json(
            {
                "version": VERSION,
                "device_id": config.device.device_id,
                "mode": view.mode,
                "process_id": os.getpid(),
                "parts": {name: asdict(part) for name, part in view.parts().items()},
                "told_last": _status(config, view.environ),
            }
        ),
        "configuration.yaml": lambda: _configuration(config),
        "configuration-state.json": lambda: _json(_layers(config.state_dir)),
        "plugins.json": lambda: _json([asdict(info) for info in view.plugins()]),
        "store.json": lambda: _store(view),
        "log.txt": lambda: "\n".join(view.lines()) + "\n",
        "system.json": lambda: _json(_system(config.state_dir)),
        "threads.txt": _threads,
        **{f"proc/{name.replace('/', '-')}": _reader(Path("/proc", name)) for name in _PROC},
    }


def _told(make: Callable[[], str]) -> str:
    """A part that cannot be made says why: what is broken must not keep the rest from being seen."""
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - as said
        return f"could not be made: {type(error).__name__}: {error}\n"


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n"


def _status(config: AgentConfig, environ: Mapping[str, str]) -> Any:
    found = read_status(status_path(config.state_dir, environ))
    return None if found is None else asdict(found)


def _configuration(config: AgentConfig) -> str:
    text: str = yaml.safe_dump(_without_secrets(config.model_dump(mode="json")), sort_keys=False, allow_unicode=True)
    return text


def _without_secrets(values: Any) -> Any:
    if isinstance(values, dict):
        return {
            name: MASK
            if isinstance(value, str) and _SECRET_NAME.search(str(name)) and not str(name).endswith("_file")
            else _without_secrets(value)
            for name, value in values.items()
        }
    return [_without_secrets(value) for value in values] if isinstance(values, list) else values


def _layers(state_dir: Path) -> dict[str, Any]:
    folder = state_dir / LAYERS
    names = sorted(file.name for file in folder.iterdir()) if folder.is_dir() else []
    starts = state_dir / STARTS
    return {"files": names, "starts": json.loads(starts.read_text("utf-8")) if starts.exists() else None}


def _store(view: AgentView) -> str:
    found = view.store()
    return "cannot be read\n" if found is None else _json(asdict(found))


def _system(state_dir: Path) -> dict[str, Any]:
    room = os.statvfs(state_dir)
    sizes = {}
    for folder, _, names in os.walk(state_dir):
        for name in names:
            file = Path(folder, name)
            sizes[str(file.relative_to(state_dir))] = file.lstat().st_size
    return {
        "python": sys.version,
        "packages": sorted({f"{each.name} {each.version}" for each in distributions()}),
        "system": " ".join(platform.uname()),
        "time": time.time(),
        "time_zone": time.strftime("%Z"),
        "free_bytes": room.f_bavail * room.f_frsize,
        "free_files": room.f_favail,
        "state_dir": str(state_dir),
        "state_files": sizes,
    }


def _threads() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = []
    for ident, frame in sys._current_frames().items():
        found.append(f"{names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}")
    return "\n".join(found)


def _reader(path: Path) -> Callable[[], str]:
    return lambda: path.read_text("utf-8", "replace")


def _summary(view: AgentView, parts: Mapping[str, bytes]) -> JsonObject:
    return {
        "version": VERSION,
        "mode": view.mode,
        "parts": {name: part.state for name, part in view.parts().items()},
        "files": {name: len(content) for name, content in parts.items()},
    }


# --- the file -------------------------------------------------------------------------------------------------------


def _packed(parts: Mapping[str, bytes]) -> bytes:
    raw = io.BytesIO()
    now_s = int(time.time())
    with gzip.GzipFile(fileobj=raw, mode="wb", mtime=now_s) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in parts.items():
            entry = tarfile.TarInfo(f"diagnostics/{name}")
            entry.size, entry.mtime, entry.mode = len(content), now_s, 0o600
            tar.addfile(entry, io.BytesIO(content))
    return raw.getvalue()


def _stored(folder: Path, content: bytes, bundle: Bundle) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    there = sorted(
        (int(match.group(1)), file) for file in folder.iterdir() if (match := _NAME.fullmatch(file.name)) is not None
    )
    path = folder / f"diagnostics-{(there[-1][0] if there else 0) + 1:06d}.tar.gz"
    oldest_s = time.time() - bundle.max_age_s
    old = [file for _, file in there[: max(0, len(there) + 1 - bundle.keep)]]
    old += [file for _, file in there if file not in old and file.stat().st_mtime < oldest_s]
    for file in old:
        file.unlink(missing_ok=True)
    replace_file(path, content, 0o600, durable=True)
    sync_directory(folder.parent)
    return path
