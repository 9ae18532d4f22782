"""Carries out faults (:mod:`simulator.service.faults`), as a proxy in front of the service would."""
