"""Regular work of the gateway: served devices, expired commands, old rows, the presence of devices."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from agent.errors import StorageError
from agent.ports import Clock
from agent.runtime.failure_log import FailureLog
from agent.runtime.service import Actor
from gateway.backend import Backend
from gateway.devices.roster import Roster
from gateway.service.commands import CommandRequests
from gateway.store.service import StoreWriter
from gateway.store.values import StoreStats

_log = logging.getLogger(__name__)

ROUND_S: Final = 2.0
_TIDY_ROUNDS: Final = 30
_SAVE_ROUNDS: Final = 5


class Housekeeper(Actor):
    """A round every :data:`ROUND_S`.

    Args:
        store, backend, roster, commands: what is looked after.
        check_fronts: puts how the fronts do into the health.
        clock: for the rounds.
        service_now: the service's clock, epoch seconds.
        repeat_after_s: how soon the same failure may be logged again, seconds.

    Attributes:
        stats: what the store held at the last round.
    """

    patience_s = 60.0

    def __init__(
        self,
        *,
        store: StoreWriter,
        backend: Backend,
        roster: Roster,
        commands: CommandRequests,
        check_fronts: Callable[[], None],
        clock: Clock,
        service_now: Callable[[], float],
        repeat_after_s: float,
    ) -> None:
        super().__init__("housekeeping")
        self.stats = StoreStats()
        self._store = store
        self._backend = backend
        self._roster = roster
        self._commands = commands
        self._look_at_fronts = check_fronts
        self._clock = clock
        self._service_now = service_now
        self._failure_log = FailureLog(_log, lambda: clock.now().monotonic_s, repeat_after_s)
        self._served: frozenset[str] = frozenset()
        self._rounds = 0
        self._due_s = 0.0

    def receive(self, message: Any) -> None:
        """Do a round now."""
        del message
        self._due_s = 0.0

    def due_at(self) -> float:
        """When the next round comes."""
        return self._due_s

    def step(self) -> None:
        """Do all of it once."""
        self._due_s = self._clock.now().monotonic_s + ROUND_S
        self._look_at_fronts()
        self._probe_devices()
        try:
            self._maintain_store()
        except StorageError as error:
            self._failure_log.report("store", f"housekeeping=waiting: {error}")
        else:
            self._failure_log.recovered("store", "housekeeping=ok: the store works again")
        self._rounds += 1

    def finish(self) -> None:
        """Save when each device was last seen."""
        try:
            self._backend.save_presence()
        except StorageError as error:
            _log.warning("presence=not_saved %s", error)

    def _probe_devices(self) -> None:
        served = self._roster.devices()
        if served != self._served:
            self._served = served
            self._commands.serve(served)
            self._backend.serve_only(served)
            _log.info("devices=%d are served", len(served))

    def _maintain_store(self) -> None:
        self._backend.expire(self._service_now())
        if self._rounds % _SAVE_ROUNDS == 0:
            self._backend.save_presence()
            self.stats = self._store.call(lambda store: store.stats())
        if self._rounds % _TIDY_ROUNDS == 0:
            now_s = self._clock.now().wall_s
            dropped = self._store.call(lambda store: store.readings.tidy(now_s))
            if dropped:
                self._failure_log.report("age", f"readings=dropped {dropped} had waited for longer than a week")
