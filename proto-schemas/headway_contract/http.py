"""Names of the HTTP API that its server and its clients share."""

from typing import Literal

API = "/api/v1"

Role = Literal["viewer", "operator", "admin"]

# Each role includes the ones before it.
ROLES: tuple[Role, ...] = ("viewer", "operator", "admin")
