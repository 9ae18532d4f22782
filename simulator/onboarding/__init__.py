"""Onboarding from labels: the journey as a table, and a driver that holds any server against it."""

from simulator.onboarding.driver import JourneyReport, OnboardingReport, StepReport, drive_label, drive_labels
from simulator.onboarding.quota import Timing
from simulator.onboarding.steps import OnboardingService, Subject

__all__ = [
    "JourneyReport",
    "OnboardingReport",
    "OnboardingService",
    "StepReport",
    "Subject",
    "Timing",
    "drive_label",
    "drive_labels",
]
