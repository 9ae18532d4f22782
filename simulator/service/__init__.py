"""The local service: the whole Manufacturer API over HTTP, for development and tests. One process, one thread, SQLite.

A request passes ``control.requests`` (the log), ``control.faults``, ``variant_layer`` (answers as another server would)
and ``gate`` (keys, quota) on its way to a route class (``http``) and a handler in ``api``, ``oauth`` or ``control``.

- ``service``: storage (``db``, schema.sql), ``clock`` and timers, ids, presence, who waits (``changes``).
- ``api``: one module for each resource of the specification, SQL and handlers side by side.
- ``oauth``: partner access: pages, token endpoint, sign-in.
- ``control``: the emulator's own surface, ``/_emulator/...``.
- ``app``, ``server``, ``config``, ``cli``: the application, uvicorn around it, its settings, the command.
"""
