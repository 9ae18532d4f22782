"""The onboarding of any server as a pytest suite, which ``fleet-simulator onboard cases`` starts."""
