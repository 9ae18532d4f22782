"""Decisions of the gateway: which device is asked for next and what the quota allows. No I/O, no clock."""
