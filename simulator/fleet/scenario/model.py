"""Scenarios: what a fleet run does, as a document that is read whole, checked whole and then frozen.

There are four kinds, each with the keys that do something for it: ``devices``, ``requests``, ``onboarding`` and
``backfill``. Reading one from a file, with every fault's line: :mod:`simulator.fleet.scenario.reading`.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self, TypeVar

from pydantic import AfterValidator, Discriminator, Field, Tag, TypeAdapter, model_validator

from agent.config.model import DialectConfig
from simulator.fleet.faults import AnyFault, AnyLinkFault
from simulator.fleet.metrics.thresholds import COMPARISONS
from simulator.fleet.settings import Delay, KeyPairFile, Name, Rate, Seconds, Section, Share
from simulator.fleet.signals import CLIMATE_SETTINGS, SignalMap

DEVICES_MAX: Final = 1_000_000
REGISTERED_PER_S: Final = 400.0
"""Devices that the local service registered in a second, on two cores with little other work."""
_ADDRESSES_MAX: Final = 65_536
_POOL: Final = 256
_STEPS_MAX: Final = 200
_ROUNDING: Final = 1e-9
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


# --- the target -------------------------------------------------------------------------------------------------------


PoolSize = Annotated[int, Field(ge=1, le=65_536)]


def count_addresses(listed: tuple[str, ...]) -> int:
    """How many addresses a list of them and of networks has.

    Raises:
        ValueError: an entry is neither.
    """
    return sum(ipaddress.IPv4Network(each).num_addresses for each in listed)


def _check_networks(listed: tuple[str, ...]) -> tuple[str, ...]:
    try:
        count = count_addresses(listed)
    except ValueError as error:
        raise ValueError(f"{error}: write IPv4 addresses, such as 10.0.0.2, or networks, such as 10.0.0.0/24") from None
    if count > _ADDRESSES_MAX:
        raise ValueError(f"{count:,} addresses are more than {_ADDRESSES_MAX:,}: write smaller networks")
    return listed


def _check_keys(keys: tuple[KeyPairFile, ...]) -> tuple[KeyPairFile, ...]:
    if len({pair.api_key for pair in keys}) < len(keys):
        raise ValueError("holds a key pair twice; each pair of a pool is another one")
    return keys


class AnyTarget(Section):
    """What is said of the target whatever is played; each kind adds its own, as a key or for good."""

    base_url: str = Field(
        default="http://127.0.0.1:8080",
        min_length=1,
        description="Address of the service. --base-url of 'run' wins over it.",
    )
    timeout_s: Seconds = Field(default=10.0, description="Patience with one request; a held poll has its wait on top.")
    ca_file: Path | None = Field(
        default=None, description="PEM file with the authority that alone is trusted over TLS; left out: the system's."
    )
    keys: Annotated[tuple[KeyPairFile, ...], AfterValidator(_check_keys)] = Field(
        default=(),
        max_length=1000,
        description="The pool of key pairs; left out: the key pair that 'run' is given on the command line.",
    )
    dialect: DialectConfig = Field(
        default_factory=DialectConfig,
        description="What is known of the service beforehand, as service.dialect of the agent's configuration.",
    )
    if TYPE_CHECKING:

        @property
        def transport(self) -> str: ...
        @property
        def through(self) -> Literal["service", "gateway"]: ...
        @property
        def connections(self) -> int | None: ...
        @property
        def source_addresses(self) -> tuple[str, ...]: ...

    @property
    def source_count(self) -> int:
        """How many addresses to connect from there are, on all machines together, at most."""
        return count_addresses(self.source_addresses) or 1

    @property
    def protocol(self) -> Literal["http", "mqtt"]:
        """First part of the names of its devices' operations, as in ``http.sensor_data``."""
        return "mqtt" if self.transport == "mqtt" else "http"

    @property
    def holds_polls(self) -> bool:
        """Whether commands come by a poll that the service holds."""
        return self.transport == "http_long_poll"

    @property
    def is_pooled(self) -> bool:
        """Whether devices share connections, ``pool`` of them."""
        return self.connections is not None

    @property
    def pool(self) -> int:
        """How many connections are shared where some are."""
        return self.connections or _POOL

    @property
    def uses_gateway(self) -> bool:
        """Whether devices talk to a gateway, with a token each, and not to the service."""
        return self.through == "gateway"


class _SocketTarget(AnyTarget):
    source_addresses: Annotated[tuple[str, ...], Field(max_length=1000), AfterValidator(_check_networks)] = Field(
        default=(),
        description="IPv4 addresses and networks to connect from, each address with about 28,000 ports; a machine "
        "takes its own of them, and has all of 127.0.0.0/8 for a target on itself. Left out: the system's choice.",
    )


class _HttpTarget(_SocketTarget):
    through: Literal["service", "gateway"] = Field(
        default="service",
        description="Straight to the service, or through the gateway with a token for each device.",
    )
    connections: PoolSize | None = Field(
        default=None,
        description="Connections of the whole run, which devices share; left out: a socket for each, as in the field.",
    )


class RequestTarget(_HttpTarget):
    """The service or gateway that requests are made to."""

    transport: ClassVar[str] = "http_poll"


class HttpTarget(_HttpTarget):
    """The service or gateway under test, over HTTP."""

    transport: Literal["http_poll", "http_long_poll"] = Field(
        default="http_long_poll",
        description="How commands reach a device: asked for periodically, or with a poll that the server holds.",
    )


class MqttTarget(_SocketTarget):
    """The gateway under test, over MQTT: readings, commands and results."""

    through: ClassVar[Literal["gateway"]] = "gateway"
    connections: ClassVar[None] = None
    transport: Literal["mqtt"] = Field(description="Over MQTT, with a session for each device.")


class ServiceTarget(AnyTarget):
    """The service itself."""

    transport: ClassVar[str] = "http_poll"
    through: ClassVar[Literal["service"]] = "service"
    source_addresses: ClassVar[tuple[str, ...]] = ()
    connections: PoolSize = Field(default=_POOL, description="Connections of the whole run.")


def _transport(value: Any) -> str:
    given = value.get("transport") if isinstance(value, dict) else getattr(value, "transport", None)
    return "mqtt" if given == "mqtt" else "http"


DeviceTarget = Annotated[
    Annotated[HttpTarget, Tag("http")] | Annotated[MqttTarget, Tag("mqtt")], Discriminator(_transport)
]


# --- what happens -----------------------------------------------------------------------------------------------------


GAUGES: Final = ("online", "connections", "open_commands", "waiting_readings")
"""What a condition may be about; the gauges of a run's seconds."""
_COMPARISON: Final = re.compile(
    rf"\s*({'|'.join(GAUGES)})\s*({'|'.join(COMPARISONS)})\s*([0-9]+(?:\.[0-9]+)?)\s*(%?)\s*",
    re.ASCII,
)
_OF_DEVICES: Final = frozenset({"online", "connections"})
_WHOLE_PERCENT: Final = 100.0


def holds(condition: str, gauges: Mapping[str, float], devices: int) -> bool:
    """Whether what a phase waits for is so now; never while a gauge in it was not measured yet.

    Args:
        condition: comparisons of a gauge with a number, joined by ``and``; ``%`` means of the fleet's devices.
        gauges: of the latest second, by name.
        devices: of the whole fleet.

    Raises:
        ValueError: it is no condition; the text says what to write.
    """
    held = True
    for term in re.split(r"\band\b", condition):
        found = _COMPARISON.fullmatch(term)
        if found is None or (found[4] and found[1] not in _OF_DEVICES):
            raise ValueError(
                f"{term.strip()!r} is no condition: compare {', '.join(GAUGES)} with a number, or the first two with a "
                "share of all devices, such as 'online >= 99%' or 'open_commands == 0', and join several by 'and'"
            )
        gauge, comparison, number, percent = found.groups()
        limit = float(number) * devices / _WHOLE_PERCENT if percent else float(number)
        value = gauges.get(gauge, math.nan)
        # Half a percent of 1,000 devices must not fail for the last binary digit of 0.995.
        value = limit if math.isclose(value, limit, rel_tol=1e-9) else value
        held = held and not math.isnan(value) and COMPARISONS[comparison](value, limit)
    return held


def _check_condition(text: str) -> str:
    holds(text, {}, 1)
    return text


Condition = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_check_condition)]


class _Phase(Section):
    name: Name = Field(description="What the report calls it.")
    duration_s: Seconds = Field(description="How long it lasts.")
    rate_factor: float = Field(
        default=1.0, gt=0, le=1000, description="Multiplies the rates of requests during this phase."
    )


class LabelPhase(_Phase):
    """Labels are scanned."""

    until: ClassVar[None] = None
    until_within_s: ClassVar[float] = 0.0
    kind: Literal["hold"]


class _WaitingPhase(_Phase):
    until: Condition | None = Field(
        default=None,
        description="A barrier at its end, such as 'online >= 99%': the next phase waits until this holds.",
    )
    until_within_s: Delay = Field(
        default=60.0, description="How long the barrier may keep the run waiting; then the run fails."
    )


class RampPhase(_WaitingPhase):
    """Devices come online one after another, or go."""

    kind: Literal["ramp"]
    to: Share = Field(default=1.0, description="Share of the fleet that is online at its end.")


class HoldPhase(_WaitingPhase):
    """Everything goes on as it is. A hold with no ramp before it switches all devices on at once."""

    kind: Literal["hold"]


class StepPhase(HoldPhase):
    """One step of a search, which is judged at its end; never written in a scenario.

    Attributes:
        level: devices that are on, or requests a second.
    """

    level: float


class StepsPhase(Section):
    """A search for the limit: step by step more of it, until a threshold breaks."""

    name: Annotated[Name, Field(max_length=40)] = Field(description="What the report calls it.")
    kind: Literal["steps"]
    first: float = Field(
        alias="from", gt=0, description="The first step: devices that are on, or requests a second of all arrivals."
    )
    to: float = Field(gt=0, description="The last step; all devices, or all arrivals at their rates, at most.")
    by: float = Field(gt=0, description="From one step to the next.")
    settle_s: Seconds = Field(
        default=10.0, description="How long each step takes to go up from the one before it; nothing of it is judged."
    )
    hold_s: Seconds = Field(description="How long each step is held; thresholds are about these seconds.")
    until_broken: tuple[str, ...] = Field(
        min_length=1, max_length=50, description="Thresholds that each step is held against; one that breaks ends it."
    )

    @model_validator(mode="after")
    def _check_levels(self) -> Self:
        if self.to < self.first:
            raise ValueError(f"'to' is less than 'from', {self.first:g}: steps go up")
        if (self.to - self.first) / self.by > _STEPS_MAX:
            raise ValueError(f"'by' makes more than {_STEPS_MAX} steps: write a larger one")
        return self

    @property
    def levels(self) -> list[float]:
        """Devices or requests a second of each step; the last one is ``to``."""
        count = max(0, math.ceil((self.to - self.first) / self.by - _ROUNDING))
        return [*(self.first + step * self.by for step in range(count)), self.to]

    def phases(self, whole: float) -> Iterable[RampPhase | StepPhase]:
        """What is played: a ramp and a hold for each step.

        Args:
            whole: devices of the fleet, or requests a second of all arrivals.
        """
        for level in self.levels:
            name = f"{self.name}-{level:.10g}"
            yield RampPhase(name=f"{name}-ramp", kind="ramp", duration_s=self.settle_s, to=min(level / whole, 1.0))
            yield StepPhase(name=name, kind="hold", duration_s=self.hold_s, level=level)


Phase = RampPhase | HoldPhase
ListedPhase = Annotated[Phase | StepsPhase, Field(discriminator="kind")]

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
        phases: tuple[_Phase, ...] = getattr(self, "phases")  # noqa: B009 - each kind has its own
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
