"""Sensors: what a sensor is, which ones there are, how they are read, and one file for each built-in."""
