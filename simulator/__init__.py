"""The fleet simulator: the service, labels, onboarding and a fleet, on one machine."""
