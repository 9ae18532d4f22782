"""What ``device-agent check`` and ``doctor`` find out, with cause and fix."""
