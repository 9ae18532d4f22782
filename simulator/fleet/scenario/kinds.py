"""The sections of scenarios of a kind of their own: history, storms of labels."""

from __future__ import annotations

from typing import Final

from pydantic import Field, field_validator

from agent.errors import InvalidMessage
from agent.wire.times import parse_time
from simulator.fleet.settings import Rate, Seconds, Section, Share

_HOUR_S: Final = 3600.0


class OnboardingSettings(Section):
    """Labels are scanned, registered and removed; some by two people at once. One label for each device."""

    rate_per_s: Rate = Field(default=20.0, description="Journeys begun in a second, over the whole fleet.")
    races: Share = Field(default=0.1, description="Share of the labels that two people register at the same moment.")
    remove: Share = Field(default=0.2, description="Share of the devices that are removed again.")


class AuditedSettings(Section):
    """What the audit at the end goes by; 'run --no-audit' leaves it out."""

    numbers: bool = Field(
        default=True,
        description="Each reading carries its sequence number as one more value, fleet_sequence. Without it, readings "
        "of a device are identified by their millisecond: for a service that takes no unknown names. Level core only.",
    )
    late_after_s: Seconds = Field(
        default=300.0, description="A reading that is accepted longer than this after it was made is late."
    )


class BackfillSettings(Section):
    """History at full speed: the devices live through it in virtual time and send what they recorded."""

    history_s: Seconds = Field(default=30 * 86_400.0, description="How far back it begins.")
    ends_at: str | None = Field(
        default=None,
        description="When it ends, as 2026-01-31T00:00:00Z: the same history whenever it is sent, so that one that was "
        "broken off can be gone on with. Without it, the last full hour before the run begins.",
    )

    @field_validator("ends_at")
    @classmethod
    def _check_time(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                parse_time(value)
            except InvalidMessage as error:
                raise ValueError(f"{error}; write it as 2026-01-31T00:00:00Z") from None
        return value

    def end_s(self, began_s: float) -> float:
        """When the history ends, for a run that begins then; both in seconds since the epoch."""
        if self.ends_at is not None:
            return parse_time(self.ends_at)
        return began_s // _HOUR_S * _HOUR_S
