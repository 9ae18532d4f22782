"""The faults that there are, of devices and of the network, by the word that a scenario names them by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

from pydantic import Field, TypeAdapter, ValidationError

from agent.errors import ConfigurationError
from agent.wire.base import describe_faults
from simulator.fleet.faults.bad_firmware import BadFirmware, BadFirmwareSettings
from simulator.fleet.faults.base import DeviceFault
from simulator.fleet.faults.blackout import Blackout, BlackoutSettings
from simulator.fleet.faults.broken_json import BrokenJson, BrokenJsonSettings
from simulator.fleet.faults.clock_jump import ClockJump, ClockJumpSettings
from simulator.fleet.faults.clock_skew import ClockSkew, ClockSkewSettings
from simulator.fleet.faults.dead_battery import DeadBattery, DeadBatterySettings
from simulator.fleet.faults.disconnect_storm import DisconnectStorm, DisconnectStormSettings
from simulator.fleet.faults.duplicates import Duplicates, DuplicatesSettings
from simulator.fleet.faults.frozen_sensor import FrozenSensor, FrozenSensorSettings
from simulator.fleet.faults.half_open import HalfOpen, HalfOpenSettings
from simulator.fleet.faults.in_step_timers import InStepTimers, InStepTimersSettings
from simulator.fleet.faults.keys import RevokedKeys, RevokedKeysSettings, RotatedKeys, RotatedKeysSettings
from simulator.fleet.faults.late_batches import LateBatches, LateBatchesSettings
from simulator.fleet.faults.link import LinkFault
from simulator.fleet.faults.link_profile import LinkProfile, LinkProfileSettings
from simulator.fleet.faults.nan_sensor import NanSensor, NanSensorSettings
from simulator.fleet.faults.out_of_order import OutOfOrder, OutOfOrderSettings
from simulator.fleet.faults.oversized_json import OversizedJson, OversizedJsonSettings
from simulator.fleet.faults.reboot_loop import RebootLoop, RebootLoopSettings
from simulator.fleet.faults.rolling_restart import RollingRestart, RollingRestartSettings
from simulator.fleet.faults.schema_drift import SchemaDrift, SchemaDriftSettings
from simulator.fleet.faults.slow_loris import SlowLoris, SlowLorisSettings
from simulator.fleet.faults.spiking_sensor import SpikingSensor, SpikingSensorSettings
from simulator.fleet.faults.tls_failure import TlsFailure, TlsFailureSettings

DeviceFaultSettings = Annotated[
    BadFirmwareSettings
    | BrokenJsonSettings
    | ClockJumpSettings
    | ClockSkewSettings
    | DeadBatterySettings
    | DuplicatesSettings
    | FrozenSensorSettings
    | InStepTimersSettings
    | LateBatchesSettings
    | NanSensorSettings
    | OutOfOrderSettings
    | OversizedJsonSettings
    | RebootLoopSettings
    | SchemaDriftSettings
    | SpikingSensorSettings
    | BlackoutSettings
    | DisconnectStormSettings
    | HalfOpenSettings
    | LinkProfileSettings
    | RevokedKeysSettings
    | RollingRestartSettings
    | RotatedKeysSettings
    | SlowLorisSettings
    | TlsFailureSettings,
    Field(discriminator="kind"),
]
"""One fault in a scenario."""

_FAULTS: Final[Mapping[type, type[DeviceFault[Any]]]] = {
    BadFirmwareSettings: BadFirmware,
    BrokenJsonSettings: BrokenJson,
    ClockJumpSettings: ClockJump,
    ClockSkewSettings: ClockSkew,
    DeadBatterySettings: DeadBattery,
    DuplicatesSettings: Duplicates,
    FrozenSensorSettings: FrozenSensor,
    InStepTimersSettings: InStepTimers,
    LateBatchesSettings: LateBatches,
    NanSensorSettings: NanSensor,
    OutOfOrderSettings: OutOfOrder,
    OversizedJsonSettings: OversizedJson,
    RebootLoopSettings: RebootLoop,
    SchemaDriftSettings: SchemaDrift,
    SpikingSensorSettings: SpikingSensor,
    BlackoutSettings: Blackout,
    DisconnectStormSettings: DisconnectStorm,
    HalfOpenSettings: HalfOpen,
    LinkProfileSettings: LinkProfile,
    RevokedKeysSettings: RevokedKeys,
    RollingRestartSettings: RollingRestart,
    RotatedKeysSettings: RotatedKeys,
    SlowLorisSettings: SlowLoris,
    TlsFailureSettings: TlsFailure,
}

KINDS: Final = tuple(sorted(settings.model_fields["kind"].annotation.__args__[0] for settings in _FAULTS))  # type: ignore[attr-defined]  # pydantic's own attribute
"""The words."""

LINK_KINDS: Final = frozenset(
    settings.model_fields["kind"].annotation.__args__[0]  # type: ignore[attr-defined]  # as above
    for settings, fault in _FAULTS.items()
    if issubclass(fault, LinkFault)
)
"""Those of the network."""

_REFUSED: Final = frozenset({"broken_json", "nan_sensor", "oversized_json", "schema_drift"})
"""Those that make bodies which a service may refuse."""

_CLOCKS: Final = frozenset({"clock_jump", "clock_skew"})
"""Those that make the clocks of devices wrong."""

_READER: Final[TypeAdapter[Any]] = TypeAdapter(DeviceFaultSettings)


def read_fault(document: Mapping[str, Any]) -> DeviceFaultSettings:
    """The settings of one fault out of a scenario.

    Raises:
        ConfigurationError: the kind is unknown, or a key is; every fault of it.
    """
    try:
        settings: DeviceFaultSettings = _READER.validate_python(dict(document))
    except ValidationError as error:
        raise ConfigurationError([describe_faults(error)], "faults") from None
    return settings


def plans_refusals(kinds: Iterable[str]) -> bool:
    """Whether faults of these kinds make readings that a service refuses, as the scenario means it."""
    return not _REFUSED.isdisjoint(kinds)


def plans_wrong_clocks(kinds: Iterable[str]) -> bool:
    """Whether faults of these kinds make the clocks of devices wrong, as the scenario means it."""
    return not _CLOCKS.isdisjoint(kinds)


def build_faults(settings: Iterable[DeviceFaultSettings], *, origin_s: float) -> tuple[DeviceFault[Any], ...]:
    """The faults of a run that begins at ``origin_s``, seconds since the epoch."""
    return tuple(_FAULTS[type(each)](each, origin_s, number) for number, each in enumerate(settings))
