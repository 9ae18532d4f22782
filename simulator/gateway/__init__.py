"""What stands between devices and the service on a developer's machine: a broker and the gateway as a process."""
