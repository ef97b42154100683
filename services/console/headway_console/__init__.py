"""The console: one HTTP API for people and programs, and web pages.

It owns no table. It reads both schemas with a read-only role (`reading`), and is the only read
model: no other service lists anything. A change is a request to the service that owns the data,
over `headway.control.*` (`services.ask`). `api.forwarded` names the route and the role of each such
request.
"""
