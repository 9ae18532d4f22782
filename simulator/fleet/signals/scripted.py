"""The signals of a device that the service plays, out of JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from agent.errors import ConfigurationError
from agent.wire.base import JsonObject, list_faults
from simulator.fleet.signals.base import Individual, SignalSet
from simulator.fleet.signals.build import build_signals
from simulator.fleet.signals.registry import SignalMap

_MAP: Final[TypeAdapter[SignalMap]] = TypeAdapter(SignalMap)


class SignalFaultsError(Exception):
    """Signals that cannot be made.

    Attributes:
        faults: (field, issue) for each.
    """

    def __init__(self, faults: Sequence[tuple[str, str]]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(f"{field}: {issue}" for field, issue in faults))


@dataclass(frozen=True, slots=True)
class DeviceSignals:
    """What the sensors of one device read."""

    signals: SignalSet
    individual: Individual

    def read(self, time_s: float) -> Mapping[str, float]:
        """Every reading at an instant, seconds since the epoch; those without a value then are left out."""
        return self.signals.read(self.individual, time_s)


def make_signals(wanted: Mapping[str, JsonObject], device: str, seed: int) -> DeviceSignals:
    """The signals of one device; the same name and seed have the same values.

    Args:
        wanted: by reading name, as ``signals`` of a scenario's device model.
        device: name of the device.
        seed: of chance.

    Raises:
        SignalFaultsError: as :func:`make_signal_set`.
    """
    return DeviceSignals(make_signal_set(wanted), Individual(seed, device))


def make_signal_set(wanted: Mapping[str, JsonObject]) -> SignalSet:
    """Signals out of JSON.

    Raises:
        SignalFaultsError: every fault, by field. Kinds that read a file are among them: whoever may call the service
            may not have it open files.
    """
    try:
        settings = _MAP.validate_python(dict(wanted))
    except ValidationError as error:
        raise SignalFaultsError(list_faults(error)) from None
    files = [name for name, one in settings.items() if one.reads_file]
    if files:
        raise SignalFaultsError([(f"{name}.kind", "reads a file: give a kind that needs none") for name in files])
    try:
        return build_signals(settings, folder=Path())
    except ConfigurationError as error:
        faults = [fault.partition(": ") for fault in error.faults]
        raise SignalFaultsError([(name, issue) for name, _, issue in faults]) from None
