"""Whole fleet runs on virtual time: plan, workers, coordinator and record are real; engines and service do no I/O."""
