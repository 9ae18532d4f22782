"""Journal and outbox in one SQLite file, used by one thread; see :mod:`agent.store.store`."""
