"""The demo: a service, a gateway, a fleet and a real agent that is killed, and the proof that nothing was lost."""
