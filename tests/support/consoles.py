"""A console for tests, and people of every role who ask it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from headway import App
from headway_clock import utc_now
from headway_console.access.sessions import sign_in_path
from headway_console.access.tokens import Token, new_token, token_as_yaml
from headway_console.settings import ConsoleSettings
from headway_console.wiring import ConsoleService, LocalCredentials, start_console
from headway_contract.http import ROLES

from support.cadences import when_made_due

LOCAL = LocalCredentials(name="me", token="headway_local-token", ticket_key="key of the tickets")


def local_link() -> str:
    """A path that signs the local person in, once."""
    return sign_in_path(LOCAL.ticket_key, utc_now())


class Console:
    """A running console and tokens of people who may use it."""

    def __init__(self, service: ConsoleService, tokens: dict[str, str]) -> None:
        self.service = service
        self.url = f"http://127.0.0.1:{service.port}"
        self.tokens = tokens

    def environment(self, role: str = "admin") -> dict[str, str]:
        """Return the environment of a command that acts in a role."""
        return {"HEADWAY_URL": self.url, "HEADWAY_TOKEN": self.tokens[role]}

    @asynccontextmanager
    async def browser(self, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
        """Yield a client that is not signed in and keeps cookies."""
        async with httpx.AsyncClient(base_url=self.url, timeout=20, **options) as client:
            yield client

    @asynccontextmanager
    async def signed_in(self, role: str = "admin") -> AsyncIterator[httpx.AsyncClient]:
        """Yield a client with a token."""
        headers = {"Authorization": f"Bearer {self.tokens[role]}"}
        async with self.browser(headers=headers) as client:
            yield client


@asynccontextmanager
async def run_console(
    database_url: str,
    nats_url: str,
    folder: Path,
    *,
    local: LocalCredentials | None = None,
    entries: tuple[Token, ...] = (),
    **settings: Any,
) -> AsyncIterator[Console]:
    """A console with a token for each role, called like `ada-operator`."""
    made = {role: new_token(f"ada-{role}", role) for role in ROLES}
    file = folder / "tokens.yaml"
    file.write_text("".join(map(token_as_yaml, [*(entry for _, entry in made.values()), *entries])))
    fields = {
        "database_url": database_url,
        "nats_url": nats_url,
        "console_address": "127.0.0.1:0",
        "api_tokens_file": str(file),
        **settings,
    }
    service = await start_console(ConsoleSettings(**fields), local=local)
    try:
        yield Console(service, {role: token for role, (token, _) in made.items()})
    finally:
        await service.stop()


FILE = """
app: billing
jobs:
  invoice: {takes_input: false}
manifests:
  invoices: {job: invoice, daily: "03:15"}
"""


def an_app() -> App:
    app = App("shop")

    @app.job("sync", group="ops")
    async def sync(ctx, number: int): ...

    app.schedule("nightly", job="sync", when=when_made_due(), input=1)
    app.schedule("weekly", job="sync", when=when_made_due(), input=2)
    return app
