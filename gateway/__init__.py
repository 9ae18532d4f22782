"""The gateway: the one client of the service that holds the key pair, and what devices talk to instead."""
