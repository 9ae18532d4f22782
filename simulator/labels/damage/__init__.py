"""Damaged labels: pictures of labels spoiled by a known amount, each with what every decoder really says about it.

One kind of damage is one function in :mod:`simulator.labels.damage.kinds` with the decorator ``damage_kind``. Four
rules keep all kinds safe:

1. A kind is a function of the label, the severity and the chance it is given. It has no state, reads no clock, file or
   randomness of its own, and never writes into the label's pixels.
2. Severity 0 gives the label as it is; 1 is the worst that the kind knows.
3. What is drawn by chance is drawn the same at every severity, so that severity is a path and not a lottery: a scratch
   grows, it does not move.
4. Its measure (modules, degrees, percent) rises with the severity.
"""
