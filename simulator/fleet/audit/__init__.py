"""The audit: the ledgers of a run against what the service gives back."""
