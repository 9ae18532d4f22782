"""The ports, implemented: HTTP, SQLite, the clocks and the service manager of this machine."""
