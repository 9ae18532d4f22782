"""Records of runs as text and back: ``run.json`` is one record, ``seconds.jsonl`` one second a line.

What is read back is taken to the letter: an unknown or missing member, or a text where a number belongs, is an error
that names file, line and member. A run that was killed leaves half a line at the most, as the last one; it is left out.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError

from agent.errors import ConfigurationError
from simulator.fleet.record import RECORD_FORMAT, RunRecord, Second

RUN_FILE: Final = "run.json"
SECONDS_FILE: Final = "seconds.jsonl"
_FAULTS_SHOWN: Final = 5
_STRICT: Final = ConfigDict(extra="forbid", strict=True, ser_json_inf_nan="constants")


def record_text(record: RunRecord) -> str:
    """The record as it stands in ``run.json``: indented JSON that ends with a line feed."""
    return _records().dump_json((record,), indent=1)[1:-1].decode().strip() + "\n"


def second_line(second: Second) -> str:
    """The second as a line of ``seconds.jsonl``, with its line feed."""
    return _seconds().dump_json((second,))[1:-1].decode() + "\n"


def parse_record(text: str, source: str = RUN_FILE) -> RunRecord:
    """A record out of its text.

    Args:
        text: what ``run.json`` holds.
        source: how error texts name the file.

    Raises:
        ConfigurationError: it is no record, or one of another version of the format.
    """
    try:
        document = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ConfigurationError([f"{source}: no JSON ({error}); is it the run.json of a fleet run?"]) from None
    found = document.get("format") if isinstance(document, dict) else None
    if found != RECORD_FORMAT:
        raise ConfigurationError(
            [f"{source}: format is {found!r}, and this version reads {RECORD_FORMAT!r}: use the version that wrote it"]
        )
    with _faults_named(source):
        return cast("RunRecord", _records().validate_json(f"[{text}]")[0])


def parse_second(line: str | bytes, source: str = SECONDS_FILE) -> Second:
    """A second out of its line.

    Raises:
        ConfigurationError: it is none.
    """
    with _faults_named(source):
        text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
        return cast("Second", _seconds().validate_json(f"[{text}]")[0])


def read_record(folder: Path) -> RunRecord:
    """The record of the run in a folder.

    Raises:
        ConfigurationError: there is none, or it is damaged.
    """
    path = folder / RUN_FILE
    try:
        return parse_record(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        raise ConfigurationError(
            [f"{path}: not there; name the folder that `fleet-simulator run --out` wrote"]
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([f"{path}: cannot be read: {error}"]) from None


def read_seconds(folder: Path) -> Iterator[Second]:
    """The seconds of the run in a folder, one after the other; hours of them fit into no memory.

    None when nothing was written, or no file at all. A last line without its end is what a killed run was writing.

    Raises:
        ConfigurationError: a line is damaged, or its second is not after the one before.
    """
    path = folder / SECONDS_FILE
    before = -1
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return
                second = parse_second(line, f"{path}:{number}")
                if second.second <= before:
                    fault = f"second {second.second} comes after second {before}: a line was moved or doubled"
                    raise ConfigurationError([f"{path}:{number}: {fault}"])
                before = second.second
                yield second
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigurationError([f"{path}: cannot be read: {error}"]) from None


@cache
def _records() -> TypeAdapter[Any]:
    # In a tuple, since a dataclass by itself takes no configuration from outside.
    return TypeAdapter(tuple[RunRecord], config=_STRICT)


@cache
def _seconds() -> TypeAdapter[Any]:
    return TypeAdapter(tuple[Second], config=_STRICT)


@contextlib.contextmanager
def _faults_named(source: str) -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        faults = [
            f"{source}: {'.'.join(str(part) for part in fault['loc'][1:]) or 'the whole'}: {_lowered(fault['msg'])}"
            for fault in error.errors(include_url=False, include_input=False)
        ]
        more = len(faults) - _FAULTS_SHOWN
        raise ConfigurationError(
            faults[:_FAULTS_SHOWN] + ([f"{source}: {more} more"] if more > 0 else []), source
        ) from None


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]
