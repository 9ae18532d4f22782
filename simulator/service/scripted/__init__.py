"""Devices that the service plays itself, by a script: they answer commands and send readings."""
