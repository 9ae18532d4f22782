"""Decisions of the service: values in, values out; no storage, no HTTP, no thread, no clock of its own."""
