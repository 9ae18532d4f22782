"""One run at a time for the same devices in a cluster, from whichever of its machines it is started.

An actor with the devices' name has them: Ray gives a name once, and ends the actor with the run that made it, however
that ends.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any, Final

from simulator.fleet.run.device_lock import claim_name, taken
from simulator.fleet.scenario.model import Scenario

_ANSWER_S: Final = 30.0
_GONE_S: Final = 10.0
"""Within this time Ray has noticed that a run has ended."""
_PAUSE_S: Final = 0.2


class _Holder:
    """Has some devices as long as it is there."""

    def __init__(self, whose: str) -> None:
        self._whose = whose

    def whose(self) -> str:
        """The run that they belong to."""
        return self._whose


@contextlib.contextmanager
def claimed_in_cluster(scenario: Scenario, base_url: str) -> Iterator[None]:
    """Keep other runs of this cluster away from the scenario's devices while the block lasts.

    Args:
        scenario: names product, user and devices.
        base_url: of the service that has them.

    Raises:
        ConfigurationError: another run has them.
    """
    name = claim_name(scenario, base_url)
    if name is None:
        yield
        return
    import ray

    here = ray.util.get_node_ip_address()
    holder = _hold(name, f"scenario {scenario.scenario}, process {os.getpid()} on {here}")
    try:
        yield
    finally:
        ray.kill(holder, no_restart=True)


def _hold(name: str, whose: str) -> Any:
    """The actor that has the name.

    Raises:
        ConfigurationError: that of another run has it.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    make = ray.remote(num_cpus=0, max_restarts=0, scheduling_strategy=here)(_Holder)
    deadline_s = time.monotonic() + _GONE_S
    while True:
        try:
            return make.options(name=name).remote(whose)
        except ValueError:
            other = _whose(name)
        if other is not None:
            raise taken(other, "this cluster")
        if time.monotonic() > deadline_s:
            raise taken("which does not answer", "this cluster")
        time.sleep(_PAUSE_S)


def _whose(name: str) -> str | None:
    """The run that has the name; None when it has just ended."""
    import ray

    try:
        return str(ray.get(ray.get_actor(name).whose.remote(), timeout=_ANSWER_S))
    except (ValueError, ray.exceptions.RayError):
        return None
