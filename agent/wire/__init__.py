"""The interface of the service as values: messages, paths, times, JSON text, QR text, and the typed client."""
