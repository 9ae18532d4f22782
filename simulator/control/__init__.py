"""The control surface of a local service from outside: the client, and the commands of ``fleet-simulator`` on it."""
