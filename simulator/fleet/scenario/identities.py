"""What the devices of a fleet are called."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Final

from agent.errors import ConfigurationError
from simulator.fleet.scenario.model import Scenario

COLUMN: Final = "device_identifier"
_FILE_BYTES: Final = 64 * 1024 * 1024
_LENGTH_MAX: Final = 128


def read_identifiers(scenario: Scenario, folder: Path) -> list[str]:
    """One identifier for each device, in the order of the devices' numbers.

    Args:
        scenario: whose they are.
        folder: a relative path of its file starts here.

    Raises:
        ConfigurationError: the file cannot be read, or does not have enough good rows.
    """
    fleet = scenario.fleet
    identities = fleet.identities
    if identities.from_file is None:
        return [f"{identities.prefix}{number:06d}" for number in range(1, fleet.devices + 1)]
    path = folder / identities.from_file
    names = _column(path)[: fleet.devices]
    if len(names) < fleet.devices:
        raise ConfigurationError([f"{path} has {len(names)} rows for {fleet.devices} devices; add rows"], str(path))
    seen: set[str] = set()
    for row, name in enumerate(names, start=2):
        if not name or len(name) > _LENGTH_MAX:
            raise ConfigurationError([f"{path}, row {row}: an identifier has 1 to {_LENGTH_MAX} characters"], str(path))
        if name in seen:
            raise ConfigurationError([f"{path}, row {row}: {name!r} is there already; each device has one"], str(path))
        seen.add(name)
    return names


def _column(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            raw = file.read(_FILE_BYTES + 1)
        if len(raw) > _FILE_BYTES:
            raise ConfigurationError([f"{path} is larger than {_FILE_BYTES} bytes"], str(path))
        rows = csv.DictReader(io.StringIO(raw.decode("utf-8-sig")))
        if COLUMN not in (rows.fieldnames or ()):
            raise ConfigurationError([f"{path} has no column {COLUMN!r}; its first row names the columns"], str(path))
        return [(row[COLUMN] or "").strip() for row in rows]
    except OSError as error:
        raise ConfigurationError([f"{path} cannot be read: {error.strerror}"], str(path)) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigurationError([f"{path} is no CSV in UTF-8: {error}"], str(path)) from None
