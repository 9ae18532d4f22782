"""Links as they are in the field: slow, lossy, far away, or behind somebody's sign-in page.

Numbers: 2G (EDGE) and 3G as the network profiles of Chromium's developer tools, the satellite as a geostationary one,
bad Wi-Fi as 5 % of loss, of which TCP makes delays and sometimes a dead connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Final, Literal

from pydantic import Field

from simulator.fleet.faults.base import LastingBasis, register_fault
from simulator.fleet.faults.link import FREE, ForeignAnswer, LinkFault, LinkPassage
from simulator.fleet.settings import Delay, Share, key
from simulator.fleet.signals.base import Individual, salt_of

_JITTER = salt_of("fault", "link_profile", "jitter")
_RETRANSMIT = salt_of("fault", "link_profile", "retransmit")
_RETRANSMIT_S: Final = 0.3
_BITS: Final = 8


@dataclass(frozen=True, slots=True)
class Profile:
    """One kind of link.

    Attributes:
        one_way_s: how long a packet is on its way.
        jitter_s: up to so much longer.
        bits_per_s: of the way up.
        loss: the part of the packets that TCP has to send again.
        dead: the part of the requests whose connection dies of it.
    """

    one_way_s: float
    jitter_s: float
    bits_per_s: float
    loss: float = 0.0
    dead: float = 0.0


PROFILES: Final = MappingProxyType(
    {
        "2g": Profile(0.15, 0.1, 35_000, 0.02, 0.002),
        "3g": Profile(0.05, 0.03, 330_000, 0.005),
        "bad_wifi": Profile(0.01, 0.05, 1_000_000, 0.05, 0.01),
        "satellite": Profile(0.27, 0.02, 1_000_000, 0.005),
        "captive_portal": Profile(0.005, 0.005, 10_000_000),
    }
)
_PORTAL: Final = ForeignAnswer(
    302,
    ((b"location", b"http://portal.example/sign-in"), (b"content-type", b"text/html"), (b"content-length", b"0")),
    b"",
)


class LinkProfileSettings(LastingBasis):
    """These devices have such a link until it is over."""

    kind: Literal["link_profile"]
    profile: Literal["2g", "3g", "bad_wifi", "satellite", "captive_portal"] = key("what kind of link")
    more_loss: Share = key("loss beside the profile's own", default=0.0)
    more_delay_s: Annotated[Delay, Field(le=60)] = key(
        "delay beside the profile's own, each way", unit="s", default=0.0
    )


@register_fault(LinkProfileSettings)
class LinkProfile(LinkFault[LinkProfileSettings]):
    """Applies :class:`LinkProfileSettings` to the devices of one run."""

    def passage(self, device: Individual, which: int, time_s: float, size_bytes: int) -> LinkPassage:
        """Delayed by distance, bandwidth and what TCP sends again; or answered by the portal."""
        if not self.acts(device, time_s):
            return FREE
        settings, profile = self.settings, PROFILES[self.settings.profile]
        out_s = profile.one_way_s + settings.more_delay_s + size_bytes * _BITS / profile.bits_per_s
        out_s += profile.jitter_s * device.uniform(_JITTER, which)
        if settings.profile == "captive_portal":
            return LinkPassage(out_s=out_s, foreign=_PORTAL)
        chance = device.uniform(_RETRANSMIT, which)
        loss = profile.loss + settings.more_loss
        if chance < profile.dead:
            return LinkPassage(out_s=out_s, request_lost=True)
        if chance < profile.dead + loss:
            out_s += _RETRANSMIT_S
        return LinkPassage(out_s=out_s, back_s=profile.one_way_s + settings.more_delay_s)
