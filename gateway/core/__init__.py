"""Decisions of the gateway: which device is asked for next, what the quota allows, what is merged. No I/O, no clock."""
