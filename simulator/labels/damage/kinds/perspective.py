"""Photographed from the side."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from simulator.labels.damage.chance import Chance
from simulator.labels.damage.label import CleanLabel
from simulator.labels.damage.pixels import Pixels, warp


@dataclass(frozen=True, slots=True)
class Perspective:
    """Photographed from the side.

    Attributes:
        tilt_degrees: between the camera and the upright at severity 1.
        distance: of the camera, in edges of the picture.
    """

    tilt_degrees: float = 82.0
    distance: float = 4.0
    name: str = "perspective"
    what: str = "photographed from the side"
    unit: str = "degrees of tilt"

    def measure(self, severity: float) -> float:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        return self.tilt_degrees * severity

    def apply(self, label: CleanLabel, severity: float, chance: Chance) -> Pixels:
        """See :class:`~simulator.labels.damage.kind.Kind`."""
        angle = chance.between(0, 2 * math.pi)
        height, width = label.pixels.shape
        along = np.arange(width) + 0.5 - width / 2
        down = (np.arange(height) + 0.5 - height / 2)[:, None]
        # In a frame whose x axis is the direction in which the label leans away.
        seen_x = along * math.cos(angle) + down * math.sin(angle)
        seen_y = down * math.cos(angle) - along * math.sin(angle)
        away = self.distance * max(height, width)
        sine, cosine = math.sin(math.radians(self.measure(severity))), math.cos(math.radians(self.measure(severity)))
        depth = away * cosine - seen_x * sine
        x = np.where(depth > 1, seen_x * away / np.maximum(depth, 1), 2 * away)
        y = seen_y * (away + x * sine) / away
        source_x = x * math.cos(angle) - y * math.sin(angle) + width / 2 - 0.5
        source_y = x * math.sin(angle) + y * math.cos(angle) + height / 2 - 0.5
        return warp(label.pixels, source_x, source_y)
