"""Onboarding from labels: the journey as a table, cases as a pytest suite for any server, campaigns by the thousand."""
