"""Where a run keeps its ledgers: ``audit/`` in the run's folder, a ledger for each worker and the list of devices."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.errors import ConfigurationError
from simulator.whole_files import cannot_write, write_whole

_FOLDER: Final = "audit"
_DEVICES: Final = "devices.csv"
_DEVICES_END: Final = 10_000_000
_COLUMNS: Final = ("device", "device_id", "name")


@dataclass(frozen=True, slots=True)
class AuditedDevice:
    """A device of the run.

    Attributes:
        device: index in the fleet, as the ledgers have it.
        device_id: the service's.
        name: for a person.
    """

    device: int
    device_id: str
    name: str


def ledger_path(run: Path, worker: int) -> Path:
    """Where a worker's ledger is."""
    return run / _FOLDER / f"worker-{worker:03d}.ledger"


def readback_path(run: Path) -> Path:
    """Where what the service gave back is kept; written anew by every audit."""
    return run / _FOLDER / "readback.ledger"


def find_ledgers(run: Path) -> tuple[Path, ...]:
    """The ledger files of all workers in a run's folder.

    Raises:
        ConfigurationError: there is none.
    """
    found = tuple(sorted((run / _FOLDER).glob("worker-*.ledger")))
    if not found:
        raise ConfigurationError(["holds no ledgers: name the folder of a run that was made with an audit"], str(run))
    return found


def has_ledgers(run: Path) -> bool:
    """Whether a run was made with an audit, which needs them."""
    return any((run / _FOLDER).glob("worker-*.ledger"))


def write_devices(run: Path, devices: Iterable[AuditedDevice]) -> None:
    """Write the list of devices.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    path = run / _FOLDER / _DEVICES
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows((each.device, each.device_id, each.name) for each in devices)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.getvalue())
    except OSError as error:
        raise ConfigurationError([cannot_write(path, error, "another --out")], "--out") from None


def read_devices(run: Path) -> tuple[AuditedDevice, ...]:
    """Read the list of devices.

    Raises:
        ConfigurationError: the file cannot be read, or is no such list.
    """
    path = run / _FOLDER / _DEVICES
    try:
        with path.open(encoding="utf-8", newline="") as file:
            devices = tuple(_rows(file))
    except OSError as error:
        raise ConfigurationError([f"cannot be read: {error.strerror}"], str(path)) from None
    except (ValueError, KeyError, TypeError, csv.Error):
        raise ConfigurationError([f"is no list of devices with the columns {', '.join(_COLUMNS)}"], str(path)) from None
    if faults := [*_faults(devices)]:
        raise ConfigurationError(faults, str(path))
    return devices


def _faults(devices: Sequence[AuditedDevice]) -> Iterator[str]:
    """What cannot be in a list that a run wrote."""
    for column in ("device", "device_id"):
        counts = Counter(getattr(each, column) for each in devices)
        for value, count in counts.items():
            if count > 1:
                yield f"{column} {value} is in it {count} times: take the copies away"
    for each in devices:
        if not 0 <= each.device < _DEVICES_END or not each.device_id:
            yield f"device {each.device} with the id {each.device_id!r} is no device of a run"


def _rows(file: Iterable[str]) -> Iterator[AuditedDevice]:
    for row in csv.DictReader(file, strict=True):
        values = [row[column] for column in _COLUMNS]
        if None in values:
            raise ValueError(row)  # a line that was cut
        yield AuditedDevice(int(values[0]), *values[1:])
