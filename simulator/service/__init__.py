"""The local service: the whole Manufacturer API over HTTP, for development and tests. One process, one thread, SQLite.

A request passes ``control.requests`` (the log), ``control.faults`` and ``gate`` (keys, quota) on its way to a route
class (``http``) and a handler in ``api``, ``oauth`` or ``control``. Of an account that is to be answered as another
server would (``variant``), ``variant_answers`` changes the request before the handler and the answer after it.

- ``service``: storage (``db``, schema.sql), ``clock`` and timers, ids, presence, who waits (``changes``).
- ``api``: one module for each resource of the specification, SQL and handlers side by side.
- ``oauth``: partner access: pages, token endpoint, sign-in.
- ``control``: the emulator's own surface, ``/_emulator/...``.
- ``app``, ``server``, ``config``, ``cli``: the application, uvicorn around it, its settings, the command.
"""
