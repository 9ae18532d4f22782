"""What the service gives back about one device, through its documented interface and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent.core.timekeeping import DEVICE_WALL_S, TIME_UNKNOWN
from agent.errors import UnexpectedAnswer
from agent.wire.sensor_data import SensorDataRecord
from simulator.demo.orders import stored_command
from simulator.demo.proofs import StoredCommand
from simulator.fleet.audit.readings import ReadingFact
from simulator.wire.client import ServiceClient

WITNESS_KEY: Final = "witness_sequence"
_TIME_FLAGS: Final = frozenset({TIME_UNKNOWN, DEVICE_WALL_S})


@dataclass(frozen=True, slots=True)
class StoredReadingRow:
    """One stored reading; ``recorded_s`` in seconds since the epoch."""

    recorded_s: float
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeviceReadBack:
    """One device as the service has it."""

    device_id: str
    commands: tuple[StoredCommand, ...]
    readings: tuple[StoredReadingRow, ...]

    def by_millisecond(self) -> tuple[ReadingFact, ...]:
        """The readings under the millisecond that they carry."""
        return tuple(ReadingFact(round(row.recorded_s * 1000), row.values) for row in self.readings)

    def by_sequence(self) -> tuple[ReadingFact, ...]:
        """The witness sensor's readings under their sequence numbers.

        What the agent adds while it has not heard the time (docs/operations.md) is no part of what the sensor said.
        """
        return tuple(
            ReadingFact(int(row.values[WITNESS_KEY]), {n: v for n, v in row.values.items() if n not in _TIME_FLAGS})
            for row in self.readings
            if WITNESS_KEY in row.values
        )

    def times_by_sequence(self) -> tuple[tuple[int, float], ...]:
        """Sequence number and time, epoch seconds, of the witness sensor's readings that the agent could date."""
        return tuple(
            (int(row.values[WITNESS_KEY]), row.recorded_s)
            for row in self.readings
            if WITNESS_KEY in row.values and not _TIME_FLAGS & row.values.keys()
        )


def read_device(client: ServiceClient, device_id: str) -> DeviceReadBack:
    """Read back every command and every reading of a device.

    Raises:
        ServiceError: the service did not answer, or not what belongs here.
    """
    listed = client.device_commands(device_id)
    if listed.malformed:
        raise UnexpectedAnswer(f"commands of {device_id}: {listed.malformed[0]}")
    return DeviceReadBack(
        device_id,
        tuple(stored_command(record, device_id) for record in listed.records),
        tuple(map(_row, client.sensor_data(device_id, order="asc"))),
    )


def _row(record: SensorDataRecord) -> StoredReadingRow:
    if record.recorded_at is None:
        raise UnexpectedAnswer("a stored reading came back without a readable recorded_at")
    return StoredReadingRow(record.recorded_at, record.sensor_data)
