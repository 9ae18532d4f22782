"""The store in its parts: file and schema, rows of journal and outbox, salvage, and the view from outside."""
