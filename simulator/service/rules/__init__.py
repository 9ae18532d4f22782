"""Rules: what they decide (:mod:`.machine`, pure), and how it is carried out in a reading's commit (:mod:`.engine`)."""
