"""Scenarios: what a fleet run does, as a document that is read whole, checked whole and then frozen.

There are four kinds, each with the keys that do something for it: ``devices``, ``requests``, ``onboarding`` and
``backfill``. Reading one from a file, with every fault's line: :mod:`simulator.fleet.scenario.reading`.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, TypeVar

from pydantic import AfterValidator, Discriminator, Field, Tag, TypeAdapter

from simulator.fleet.faults import AnyFault, AnyLinkFault
from simulator.fleet.scenario.phases import HoldPhase, LabelPhase, ListedPhase, Phase, StepsPhase
from simulator.fleet.scenario.targets import DeviceTarget, HttpTarget, RequestTarget, ServiceTarget
from simulator.fleet.settings import Delay, Name, Rate, Seconds, Section, Share
from simulator.fleet.signals import CLIMATE_SETTINGS, SignalMap

DEVICES_MAX: Final = 1_000_000
REGISTERED_PER_S: Final = 400.0
"""Devices that the local service registered in a second, on two cores with little other work."""
_SHARES_TOLERANCE: Final = 1e-6
"""What decimals such as 0.333333 leave."""


# --- the devices ------------------------------------------------------------------------------------------------------


class TelemetrySettings(Section):
    """When a device reads its sensors and sends."""

    every_s: Seconds = Field(default=60.0, description="Between two readings.")
    phase: Literal["hashed", "in_step"] = Field(
        default="hashed",
        description="hashed: each device at its own moment of the period; in_step: all at the same moment.",
    )
    batch: Annotated[int, Field(ge=1, le=500)] = Field(
        default=100, description="Most readings of one request, for a backlog, where the service takes arrays."
    )


class PollSettings(Section):
    """When a device asks for commands."""

    every_s: Seconds = Field(default=60.0, description="Between two polls, for transport http_poll.")
    wait_s: Annotated[Seconds, Field(le=30)] = Field(
        default=20.0, description="How long the service is asked to hold a poll, for transport http_long_poll."
    )


class ModelSettings(Section):
    """One kind of device that requests are made for."""

    name: Name = Field(default="climate", description="What `plan` calls it.")
    share: Share = Field(default=1.0, gt=0, description="Share of the fleet; all models together make 1.")
    signals: SignalMap = Field(
        default_factory=lambda: dict(CLIMATE_SETTINGS),
        description="What its sensors read, by reading name; left out: what a climate node reads.",
    )


class ReadingModelSettings(ModelSettings):
    """One kind of device that reads its sensors."""

    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings, description="Readings.")


class DeviceModelSettings(ReadingModelSettings):
    """One kind of device with the agent's core."""

    poll: PollSettings = Field(default_factory=PollSettings, description="Asking for commands.")


class _Fleet(Section):
    product: str = Field(
        default="climate-node", min_length=1, description="climate-node (built in), or a YAML file as POST /products."
    )
    devices: Annotated[int, Field(ge=1, le=DEVICES_MAX)] = Field(description="How many.")
    prefix: Name = Field(default="sim-", description="They are called by this and a number: sim-000001.")
    user_id: str = Field(default="fleet", min_length=1, max_length=128, description="Who registers them.")

    def identifier(self, device: int) -> str:
        """Of a device, by its index in the fleet."""
        return f"{self.prefix}{device + 1:06d}"


class LabelFleet(_Fleet):
    """The devices whose labels are scanned; none of them is registered before."""

    models: ClassVar[tuple[ModelSettings, ...]] = ()


def _check_models(models: tuple[AnyModel, ...]) -> tuple[AnyModel, ...]:
    names = [model.name for model in models]
    if again := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"several models are called {again.pop()!r}: give each a name of its own")
    total = sum(model.share for model in models)
    if not math.isclose(total, 1.0, abs_tol=_SHARES_TOLERANCE):
        raise ValueError(f"the shares of the models make {total:.6g} together; they must make 1")
    return models


AnyModel = TypeVar("AnyModel", bound=ModelSettings)
Models = Annotated[tuple[AnyModel, ...], Field(min_length=1, max_length=50), AfterValidator(_check_models)]


class RequestFleet(_Fleet):
    """The devices that requests are made for."""

    models: Models[ModelSettings] = Field(default=(ModelSettings(),), description="What they are.")


class HistoryFleet(_Fleet):
    """The devices that have a history."""

    models: Models[ReadingModelSettings] = Field(default=(ReadingModelSettings(),), description="What they are.")


class DeviceFleet(_Fleet):
    """The devices."""

    models: Models[DeviceModelSettings] = Field(default=(DeviceModelSettings(),), description="What they are.")


# --- what is sent -----------------------------------------------------------------------------------------------------

Spacing = Literal["even", "poisson"]


class _Stream(Section):
    rate_per_s: Rate = Field(description="How many in a second, over the whole fleet; a ramp brings it up with it.")
    spacing: Spacing = Field(default="even", description="Evenly, or as independent senders would (Poisson).")


class CommandSettings(_Stream):
    """A stream of commands that the operator sends."""

    payload: dict[str, Any] = Field(description="The command_payload, as the product's vocabulary takes it.")
    expect: Literal["succeeded", "failed", "rejected", "expired", "any"] = Field(
        default="succeeded",
        description="How each has to end; the run fails when one ends otherwise. any: it does not matter.",
    )
    ttl_s: Annotated[Delay, Field(ge=1, le=172_800)] = Field(
        default=60.0, description="How long the service keeps it for a device that does not fetch it."
    )
    devices: Share = Field(default=1.0, gt=0, description="Share of the fleet that gets such commands.")

    @property
    def name(self) -> str:
        """What the command is called in reports and thresholds."""
        return str(self.payload.get("command", "")) or "(no name)"


class Arrivals(_Stream):
    """Requests at a rate of their own, whatever the target does: as the world outside behaves."""

    operation: Literal["sensor_data", "poll"] = Field(default="sensor_data", description="What is requested.")


class OnboardingSettings(Section):
    """Labels are scanned and registered, some by two people at once. One label for each device."""

    rate_per_s: Rate = Field(default=20.0, description="Journeys begun in a second, over the whole fleet.")
    races: Share = Field(default=0.1, description="Share of the labels that two people register at the same moment.")


class AuditedSettings(Section):
    """What the audit at the end goes by; 'run --no-audit' leaves it out."""

    numbers: bool = Field(
        default=True,
        description="Each reading carries its sequence number as one more value, fleet_sequence. Without it, readings "
        "of a device are identified by their millisecond: for a service that takes no unknown names.",
    )
    device_filter: str | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        description="Query parameter by which GET /sensor-data gives one device's readings, such as deviceId: all are "
        "read device by device then. Left out: as the service announces it, else everything at once.",
    )


class BackfillSettings(Section):
    """History at full speed: the devices live through it in virtual time and send what they recorded, up to the last
    full hour before the run begins.
    """

    history_s: Seconds = Field(default=30 * 86_400.0, description="How far back it begins.")
    within_s: Seconds = Field(default=3600.0, description="How long sending it may take; then the run fails.")


# --- the kinds --------------------------------------------------------------------------------------------------------

Workers = Annotated[int, Field(ge=1, le=256)] | None
_WORKERS: Final[Any] = Field(
    default=None,
    description="Processes that make the load; left out: as many as it needs, one for each core at most.",
)
_DRAIN: Final[Any] = Field(default=30.0, description="How long what is under way at the end may take.")
_FAULTS: Final[Any] = Field(default=(), max_length=1000, description="What is broken on purpose, and when.")
_PHASES: Final[Any] = Field(min_length=1, max_length=1000, description="What happens, in order.")
_LISTED: Final[Any] = Field(alias="phases", min_length=1, max_length=1000, description="What happens, in order.")


class _Scenario(Section):
    scenario: Name = Field(description="Its name, in reports and in the label of what it creates.")
    description: str = Field(default="", max_length=2000, description="What it is for, in a sentence; `plan` shows it.")
    seed: int = Field(default=1, ge=0, lt=1 << 63, description="The same seed plans the same events.")
    thresholds: tuple[str, ...] = Field(
        default=(), max_length=200, description="What has to hold, such as 'http.sensor_data.p99 < 250ms over 1m'."
    )
    abort_on: tuple[str, ...] = Field(
        default=(),
        max_length=50,
        description="Thresholds over a time, such as 'http.failed.rate < 50% over 10s'; the first that breaks ends the "
        "run, which fails.",
    )

    @property
    def duration_s(self) -> float:
        """All phases together, without the waits at barriers and the drain."""
        phases: tuple[Phase | LabelPhase, ...] = getattr(self, "phases")  # noqa: B009 - each kind has its own
        return sum(phase.duration_s for phase in phases)


class _SearchingScenario(_Scenario):
    """A kind whose last phase may be a search for the limit."""

    if TYPE_CHECKING:

        @property
        def listed(self) -> tuple[ListedPhase, ...]: ...

    @property
    def whole(self) -> float:
        """What a step of a search is a part of."""
        raise NotImplementedError

    @property
    def search(self) -> StepsPhase | None:
        """The search that it ends with; None without one."""
        last = self.listed[-1]
        return last if isinstance(last, StepsPhase) else None

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        """What is played, in order: of a search a ramp and a hold for each step."""
        found: list[Phase] = []
        for phase in self.listed:
            found += phase.phases(self.whole) if isinstance(phase, StepsPhase) else [phase]
        return tuple(found)


class DevicesScenario(_SearchingScenario):
    """Devices, each with the agent's own core: they read, poll, carry commands out and suffer faults."""

    arrivals: ClassVar[tuple[Arrivals, ...]] = ()
    kind: Literal["devices"] = Field(default="devices", description="Devices with the agent's core.")
    workers: Workers = _WORKERS
    target: DeviceTarget = Field(default_factory=HttpTarget, description="Whom the fleet talks to.")
    fleet: DeviceFleet = Field(description="The devices.")
    commands: tuple[CommandSettings, ...] = Field(default=(), max_length=100, description="What the operator sends.")
    listed: tuple[ListedPhase, ...] = _LISTED
    drain_s: Delay = _DRAIN
    faults: tuple[AnyFault, ...] = _FAULTS
    audit: AuditedSettings = Field(default_factory=AuditedSettings, description="What is proven at the end.")

    @property
    def whole(self) -> float:
        """See :attr:`_SearchingScenario.whole`: all devices."""
        return float(self.fleet.devices)


class RequestsScenario(_SearchingScenario):
    """Requests over HTTP as devices make them, without a device behind them."""

    commands: ClassVar[tuple[CommandSettings, ...]] = ()
    audit: ClassVar[AuditedSettings] = AuditedSettings()
    kind: Literal["requests"] = Field(description="Requests without devices.")
    workers: Workers = _WORKERS
    target: RequestTarget = Field(default_factory=RequestTarget, description="Whom they are made to.")
    fleet: RequestFleet = Field(description="The devices that they are made for.")
    arrivals: tuple[Arrivals, ...] = Field(min_length=1, max_length=100, description="What is requested, how often.")
    listed: tuple[ListedPhase, ...] = _LISTED
    drain_s: Delay = _DRAIN
    faults: tuple[AnyLinkFault, ...] = _FAULTS

    @property
    def whole(self) -> float:
        """See :attr:`_SearchingScenario.whole`: requests a second of all arrivals."""
        return sum(each.rate_per_s for each in self.arrivals)


class _SimpleScenario(_Scenario):
    """A kind in which nobody orders commands and nothing is broken on purpose."""

    commands: ClassVar[tuple[CommandSettings, ...]] = ()
    arrivals: ClassVar[tuple[Arrivals, ...]] = ()
    faults: ClassVar[tuple[AnyFault, ...]] = ()
    audit: ClassVar[AuditedSettings] = AuditedSettings()


class OnboardingScenario(_SimpleScenario):
    """Labels through scan and register."""

    workers: ClassVar[None] = None
    kind: Literal["onboarding"] = Field(description="Onboarding from labels.")
    target: ServiceTarget = Field(default_factory=ServiceTarget, description="Who registers them.")
    fleet: LabelFleet = Field(description="The labels: one for each device.")
    onboarding: OnboardingSettings = Field(default_factory=OnboardingSettings, description="What happens to them.")
    phases: tuple[LabelPhase, ...] = _PHASES
    drain_s: Delay = _DRAIN


class BackfillScenario(_SimpleScenario):
    """Days of history at full speed."""

    drain_s: ClassVar[float] = 30.0
    kind: Literal["backfill"] = Field(description="History at full speed.")
    workers: Workers = _WORKERS
    target: ServiceTarget = Field(default_factory=ServiceTarget, description="Who takes it.")
    fleet: HistoryFleet = Field(description="The devices.")
    backfill: BackfillSettings = Field(default_factory=BackfillSettings, description="Which history.")

    @property
    def phases(self) -> tuple[HoldPhase, ...]:
        """History knows no phases: there is one, which lasts as long as it takes."""
        within_s = self.backfill.within_s
        hold = HoldPhase(
            name="history", kind="hold", duration_s=1.0, until="waiting_readings < 1", until_within_s=within_s
        )
        return (hold,)


Scenario = DevicesScenario | RequestsScenario | OnboardingScenario | BackfillScenario


def _kind(value: Any) -> Any:
    return value.get("kind", "devices") if isinstance(value, dict) else getattr(value, "kind", None)


READER: Final[TypeAdapter[Scenario]] = TypeAdapter(
    Annotated[
        Annotated[DevicesScenario, Tag("devices")]
        | Annotated[RequestsScenario, Tag("requests")]
        | Annotated[OnboardingScenario, Tag("onboarding")]
        | Annotated[BackfillScenario, Tag("backfill")],
        Discriminator(_kind),
    ]
)
"""Reads and writes the document of a scenario of any kind."""


def scenario_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 with every key, unit and bound; reading a scenario also checks how its parts fit."""
    schema = READER.json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Fleet scenario"}
