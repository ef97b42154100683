"""The console: one HTTP API for people and programs, and web pages.

It owns no table. It reads both schemas with a role that can only read (`reading`), and is the only
read model: no other service lists anything. Whatever changes something is a request to the service
that owns it, over `headway.control.*` (`services.ask`). `headway_contract.routes` names the route
and the role of each such request.
"""
