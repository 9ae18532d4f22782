"""The devices of a scenario: their number, names and models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from simulator.fleet.settings import Name, Seconds, Section, Share
from simulator.fleet.signals import CLIMATE_SETTINGS, SignalMap

DEVICES_MAX: Final = 1_000_000
Version = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$")]


class IdentitySettings(Section):
    """What the devices are called."""

    prefix: Name = Field(default="sim-", description="Identifiers are this and a number: sim-000001.")
    from_file: Path | None = Field(
        default=None,
        alias="from",
        description="CSV file with a column device_identifier and a row for each device, instead of made-up names.",
    )
    user_id: str = Field(default="fleet", min_length=1, max_length=128, description="Who registers them.")


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


class FirmwareSettings(Section):
    """Which firmware devices have, and how an update goes (command ``update_firmware`` with ``version``)."""

    versions: dict[Version, Annotated[float, Field(gt=0)]] = Field(
        min_length=1, max_length=50, description="Versions that devices leave the factory with, and their weights."
    )
    update_s: Seconds = Field(default=60.0, description="How long an update takes, with the restart at its end.")
    failure_share: Share = Field(default=0.0, description="Which part of the updates fails and leaves the old version.")


class ModelSettings(Section):
    """One kind of device."""

    name: Name = Field(default="climate", description="What `plan` calls it.")
    share: Share = Field(default=1.0, gt=0, description="Share of the fleet; all models together make 1.")
    signals: SignalMap = Field(
        default_factory=lambda: dict(CLIMATE_SETTINGS),
        description="What its sensors read, by reading name; left out: what a climate node reads.",
    )
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings, description="Readings.")
    poll: PollSettings = Field(default_factory=PollSettings, description="Asking for commands.")
    firmware: FirmwareSettings | None = Field(
        default=None, description="Which firmware it has, and how updates go; left out: it reports none."
    )


class FleetSettings(Section):
    """The devices."""

    product: str = Field(
        default="climate-node", min_length=1, description="climate-node (built in), or a YAML file as POST /products."
    )
    devices: Annotated[int, Field(ge=1, le=DEVICES_MAX)] = Field(description="How many.")
    prepare_within_s: Seconds = Field(
        default=900.0,
        description="How long registering the devices may take, at the 400/s of a local service; 'plan' and 'run' "
        "refuse more devices than that.",
    )
    identities: IdentitySettings = Field(default_factory=IdentitySettings, description="What they are called.")
    models: tuple[ModelSettings, ...] = Field(
        default=(ModelSettings(),), min_length=1, max_length=50, description="What they are."
    )
