"""The onboarding storm: labels are scanned, registered and removed by the thousand, some by two people at once."""
