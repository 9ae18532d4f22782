"""The client's other half: what operators, apps and test benches say to the service, on top of :mod:`agent.wire`."""
