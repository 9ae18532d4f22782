"""Does the target's limiter keep its promise? Asked from outside, with nothing but requests."""
