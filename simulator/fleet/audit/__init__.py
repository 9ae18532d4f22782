"""The audit: what devices say they did, against what the service gives back."""
