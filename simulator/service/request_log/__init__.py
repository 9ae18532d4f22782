"""What the service was sent and what it answered: the request log and the access log."""
