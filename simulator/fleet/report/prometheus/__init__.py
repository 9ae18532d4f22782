"""Figures of a run for Prometheus: an address during the run, a file at its end; docs/monitoring.md describes them."""
