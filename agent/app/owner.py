"""Whose a store is; :mod:`agent.app.other_devices` handles the stores of others."""

from __future__ import annotations

from typing import Final

OWNER: Final = "device_id"
"""The setting of a store that says whose it is."""
OTHER_DEVICES: Final = "other-devices"
"""The folder in the state directory that holds the stores of others."""
