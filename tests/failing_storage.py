"""The storage of a running service, failing at its commits."""

from __future__ import annotations

import contextlib

from sqlalchemy.exc import OperationalError

from tests.service_running import Bench


class Storage:
    """Transactions of a running service that fail within :meth:`fails`.

    The modes: ``rolled back``, before the commit; ``in doubt``, with the connection lost once all is stored; ``lost``,
    with the connection lost and nothing stored.
    """

    def __init__(self, bench: Bench) -> None:
        database = bench.service._service.database
        self._writing = database.writing
        self._mode = self._once = ""
        database.writing = self._failing  # type: ignore[method-assign]

    @contextlib.contextmanager
    def fails(self, mode: str):
        self._mode = mode
        yield
        self._mode = ""

    def fail_this(self, mode: str) -> None:
        """As within :meth:`fails`, the transaction that is under way alone."""
        self._once = mode

    @contextlib.contextmanager
    def _failing(self, connection):
        with self._writing(connection):
            yield
            mode, self._once = self._once or self._mode, ""
            if mode in {"rolled back", "lost"}:
                raise OperationalError("COMMIT", {}, Exception("disk full"), connection_invalidated=mode == "lost")
        if mode == "in doubt":  # it is committed, and nobody learns of it
            raise OperationalError("COMMIT", {}, Exception("gone"), connection_invalidated=True)
