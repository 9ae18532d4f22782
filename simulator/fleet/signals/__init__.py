"""Signals: what a sensor reads, as a function of seed, device and time."""
