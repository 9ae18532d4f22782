"""The local service: the whole Manufacturer API over HTTP, for development and tests.

From below; a module imports none of those after it (``lint-imports``):

- ``errors``, ``core``: errors that know no HTTP; decisions without I/O: a command's life cycle, rules' conditions,
  token families, columns.
- ``storage``: tables, statements, and the one thread that writes.
- ``rules``, ``ingest``: fire rules; store readings.
- ``service``: the parts put together, and what happens between requests.
- ``gate``, ``call``, ``endpoints``, ``paging``: a request on its way to its handler. ``faults``: errors as answers.
- ``routes``: one module for each group of endpoints. ``document``: the OpenAPI document, from the same declarations.
- ``oauth``: endpoints and pages of partner access.
- ``profile_layer``: answers an account as another server would (``profiles``).
- ``app``, ``server``, ``cli``: the ASGI application, uvicorn around it, the command.
"""
