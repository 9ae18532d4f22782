"""Decisions. No I/O, no clock, no thread and no randomness of its own: ``now`` and numbers come in, values go out."""
