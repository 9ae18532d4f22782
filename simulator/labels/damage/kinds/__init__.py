"""The kinds of damage, one file each. A new one is a file beside these and a line below."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from simulator.labels.damage.kind import Kind
from simulator.labels.damage.kinds.blur import Blur
from simulator.labels.damage.kinds.contrast import Contrast
from simulator.labels.damage.kinds.crease import Crease
from simulator.labels.damage.kinds.curvature import Curvature
from simulator.labels.damage.kinds.dead_dots import DeadDots
from simulator.labels.damage.kinds.dirt import Dirt
from simulator.labels.damage.kinds.glare import Glare
from simulator.labels.damage.kinds.ink_spread import InkSpread
from simulator.labels.damage.kinds.inverted import Inverted
from simulator.labels.damage.kinds.jpeg import Jpeg
from simulator.labels.damage.kinds.low_resolution import LowResolution
from simulator.labels.damage.kinds.mirrored import Mirrored
from simulator.labels.damage.kinds.motion_blur import MotionBlur
from simulator.labels.damage.kinds.noise import Noise
from simulator.labels.damage.kinds.partial_print import PartialPrint
from simulator.labels.damage.kinds.perspective import Perspective
from simulator.labels.damage.kinds.quiet_zone import QuietZone
from simulator.labels.damage.kinds.rotation import Rotation
from simulator.labels.damage.kinds.scratches import Scratches
from simulator.labels.damage.kinds.several_codes import SeveralCodes
from simulator.labels.damage.kinds.stains import Stains
from simulator.labels.damage.kinds.uneven_light import UnevenLight

_ALL: Final[tuple[Kind, ...]] = (
    Blur(),
    MotionBlur(),
    Noise(),
    Contrast(),
    Glare(),
    UnevenLight(),
    Perspective(),
    Rotation(),
    Curvature(),
    Crease(),
    QuietZone(),
    Scratches(),
    Stains(),
    Dirt(),
    PartialPrint(),
    DeadDots(),
    InkSpread(),
    LowResolution(),
    Jpeg(),
    Inverted(),
    Mirrored(),
    SeveralCodes(),
)

KINDS: Final[Mapping[str, Kind]] = MappingProxyType({kind.name: kind for kind in _ALL})
"""By name, in the order in which manifests and contact sheets show them."""
