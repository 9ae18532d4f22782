"""The firmware of a thermometer: it sends what it measures, and does what it is commanded."""

from thermometer.firmware import Thermometer

__all__ = ["Thermometer"]
