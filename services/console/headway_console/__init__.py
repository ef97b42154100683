"""The console: one HTTP API for people and programs, and the web pages that stand on it.

It owns no table. What it lists it reads from both schemas with a role that can only read
(`reading`); whatever changes something is a request to the service that owns it, over
`headway.control.*`, and the answer or the refusal is handed back. One table (`headway.http_routes`)
says which route stands for which request and which role a person needs for it; the
command line reads the same table backwards.
"""
