"""Whole fleet runs on virtual time: plan, workers, conductor and record are real; engines and service do no I/O."""
