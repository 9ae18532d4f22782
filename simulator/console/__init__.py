"""The console: pages on which a running service is seen and steered in a browser on the same machine."""
