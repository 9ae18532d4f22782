"""Decisions. No I/O, no clock, no thread and no randomness of its own: ``now`` and numbers come in, values go out.

The core handles:

- the life cycle of a command as a table of legal moves; a missing entry is the error;
- what a listed command is: new, already known, too old, unknown, invalid;
- what a crash in the middle means for each handler contract, and what the answer of a verify hook changes about it;
- how long a command may wait and run, and how many may wait;
- which readings go next, and which are dropped at a bound and why;
- when to try again: back-off with full jitter, ``Retry-After``, the adaptive poll interval, the phase of a schedule.

The core never handles:

- reading a clock or drawing a random number: ``now`` and numbers come in as arguments;
- files, sockets, threads, processes, logging;
- JSON text or HTTP: it sees values that were parsed at the edge;
- the meaning of a command's payload beyond the member that names the handler.

Therefore the I/O layer must:

- parse and bound everything from outside before the core sees it: one malformed item is reported, never fatal;
- take ``now`` once per decision and pass the same moment to everything that decision touches;
- commit what the core decided *before* acting on it, and acknowledge only after the commit;
- never act on a value that the core did not return;
- bring each wait to an end when the agent stops.
"""
