"""The layer that commands lay over the local file, and the trial of a new one: ``config.d`` in ``state_dir``.

========================  ==========================================================================================
``remote.yaml``           the layer in force
``candidate.yaml``        the layer that is tried, or will replace ``remote.yaml`` in a moment
``trial.json``            which command brought the candidate and how its trial stands; without it no candidate counts
========================  ==========================================================================================

A layer is laid over the local file's values as a JSON merge patch (RFC 7396): sections are merged, everything else is
replaced, and null takes a key out of the file, so that its default counts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from agent.adapters.files import replace_file, sync_directory
from agent.config.text import MAX_BYTES, KeyPath, read_document
from agent.errors import ConfigurationError

FOLDER: Final = "config.d"
KEPT: Final = "remote.yaml"
CANDIDATE: Final = "candidate.yaml"
TRIAL: Final = "trial.json"

PROTECTED: Final = ("auth", "device", "state_dir")
"""Sections that no layer may touch: who this device is, its keys, and where its memory lies."""

TRYING: Final = "trying"
KEEPING: Final = "kept"
ROLLED_BACK: Final = "rolled_back"

_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
_MAX_TRIAL_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Trial:
    """How a new layer does. Every change of it is on the disk before the step that it announces.

    Attributes:
        command_id: the ``update_config`` that is answered when the trial is over.
        phase: ``trying``: the candidate counts; ``kept``: it replaces ``remote.yaml``; ``rolled_back``: it is no more.
        starts: how many processes have begun with the candidate.
        max_starts: one more takes the old layer back.
        probation_s: how long a process must stay well with it, seconds.
        sha256, base_sha256: of the candidate, and of the layer that it replaces.
        changed: dotted keys whose value is another one than before.
        before: part of the agent -> its state before the change.
        reason: why it was rolled back.
    """

    command_id: str
    phase: str
    max_starts: int
    probation_s: float
    sha256: str
    base_sha256: str
    changed: tuple[str, ...] = ()
    before: Mapping[str, str] = field(default_factory=dict)
    starts: int = 0
    reason: str = ""


def merge(target: Any, patch: Any) -> Any:
    """RFC 7396, section 2; neither argument is changed."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def sha256_of(path: Path) -> str:
    """The digest of a layer's bytes as hexadecimal text; a layer that is not there counts as empty.

    Raises:
        OSError: it cannot be read.
    """
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return hashlib.sha256(b"").hexdigest()


def parse_layer(text: str, source: str) -> dict[str, Any]:
    """The values of a configuration layer, from its text.

    Raises:
        ConfigurationError: it is no YAML of ours, no mapping, or touches what no layer may touch.
    """
    if len(text) > MAX_BYTES:
        raise ConfigurationError([f"is larger than {MAX_BYTES} bytes; send what differs from the local file"], source)
    document = read_document(text)
    faults = list(document.faults)
    values = {} if document.values is None else document.values
    if not isinstance(values, dict):
        raise ConfigurationError([*faults, "must hold sections such as 'logging:', not a list or a word"], source)
    faults += [f"{name}: only the local file may set it; take it out" for name in PROTECTED if name in values]
    if faults:
        raise ConfigurationError(faults, source)
    return values


def read_layer(path: Path) -> dict[str, Any]:
    """The values of a layer's file.

    Raises:
        ConfigurationError: it cannot be read or used.
    """
    try:
        with path.open("rb") as file:
            return parse_layer(file.read(MAX_BYTES + 1).decode(), str(path))
    except OSError as error:
        raise ConfigurationError([f"cannot be read: {error.strerror}"], str(path)) from None
    except UnicodeDecodeError:
        raise ConfigurationError(["is not UTF-8 text"], str(path)) from None


def origins_of(values: Mapping[str, Any], source: str, path: KeyPath = ()) -> dict[KeyPath, str]:
    """Every leaf of a layer -> where it comes from, for the sentences about faults."""
    found: dict[KeyPath, str] = {}
    for name, value in values.items():
        here = (*path, name)
        if isinstance(value, dict) and value:
            found |= origins_of(value, source, here)
        else:
            found[here] = source
    return found


def layer_in_force(state_dir: Path) -> Path | None:
    """The layer that a process beginning now goes by; None when there is none. Changes nothing.

    Raises:
        OSError: the directory cannot be read.
    """
    folder = state_dir / FOLDER
    trial = read_trial(state_dir)
    candidate = folder / CANDIDATE
    if trial is not None and trial.phase in {TRYING, KEEPING} and candidate.exists():
        return candidate
    kept = folder / KEPT
    return kept if kept.exists() else None


# --- the trial's file ---------------------------------------------------------------------------------------------


def read_trial(state_dir: Path) -> Trial | None:
    """The trial that is under way or waits to be answered; None when there is none or its file is damaged.

    Raises:
        OSError: it cannot be read.
    """
    try:
        with (state_dir / FOLDER / TRIAL).open("rb") as file:
            members = json.loads(file.read(_MAX_TRIAL_BYTES))
        known = {each.name: members[each.name] for each in fields(Trial) if each.name in members}
        return Trial(**{**known, "changed": tuple(members["changed"])})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, RecursionError):
        # It is replaced in one step, so only a broken disk comes here; the layer that was kept counts.
        return None


def write_trial(state_dir: Path, trial: Trial) -> None:
    """Replace the file; it is on the disk when this returns.

    Raises:
        OSError: it could not be written.
    """
    replace_file(state_dir / FOLDER / TRIAL, json.dumps(asdict(trial)), _MODE, durable=True)


def propose(state_dir: Path, text: str, trial: Trial) -> None:
    """Put a candidate on trial: from the moment that this returns, each process begins with it.

    Raises:
        OSError: it could not be written; the layer in force is what it was.
    """
    folder = state_dir / FOLDER
    folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
    sync_directory(state_dir)
    replace_file(folder / CANDIDATE, text, _MODE, durable=True)
    write_trial(state_dir, trial)


def settle(state_dir: Path, trial: Trial) -> None:
    """Do what the phase ``kept`` or ``rolled_back`` has announced; doing it again changes nothing.

    Raises:
        OSError: it could not be done.
    """
    folder = state_dir / FOLDER
    candidate = folder / CANDIDATE
    if trial.phase == KEEPING and candidate.exists():
        candidate.replace(folder / KEPT)
    elif trial.phase == ROLLED_BACK:
        candidate.unlink(missing_ok=True)
    sync_directory(folder)


def roll_back(state_dir: Path, trial: Trial, reason: str) -> Trial:
    """The old layer counts from now on.

    Raises:
        OSError: it could not be written, so the candidate still counts.
    """
    over = replace(trial, phase=ROLLED_BACK, reason=reason)
    write_trial(state_dir, over)
    settle(state_dir, over)
    return over


def forget_trial(state_dir: Path) -> None:
    """The command is answered: the trial is over.

    Raises:
        OSError: the file could not be deleted.
    """
    folder = state_dir / FOLDER
    (folder / TRIAL).unlink(missing_ok=True)
    sync_directory(folder)
