"""Decisions. No I/O, no clock, no thread and no randomness of its own: ``now`` and numbers come in, values go out.

The caller must

- parse and bound everything from outside before the core sees it: one malformed item is reported, never fatal;
- take ``now`` once per decision and pass the same moment to everything that decision touches;
- commit what the core decided *before* acting on it, and acknowledge only after the commit.
"""
