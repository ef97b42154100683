"""Small apps, and definitions made of them."""

from headway import App, every
from headway.define.definitions import API_OWNER, Definitions
from msgspec import structs

from support.cadences import when_made_due


def app_with(when=None, *, name: str = "app", **options) -> App:
    app = App(name)
    app.job("job")(lambda ctx: None)
    app.schedule("m", job="job", when=when or every(minutes=5), **options)
    return app


def jobs_with(kind: type) -> App:
    """Return an app with only one job, which takes an input of this type."""
    app = App("jobs")

    def body(ctx, given): ...

    body.__annotations__["given"] = kind
    app.job("job")(body)
    return app


def at_run_time(definitions: Definitions, **changes) -> Definitions:
    made = structs.replace(definitions.manifests[0], **changes)
    return Definitions(owner=API_OWNER, manifests=(made,))


def nightly() -> App:
    """An app whose one job, in the group `ops`, runs whenever a test makes it due."""
    app = App("test")

    @app.job("job", group="ops")
    @when_made_due()
    async def job(ctx):
        return "done"

    return app


def ticking() -> App:
    """An app whose one job, in the group `ops`, runs every second."""
    app = App("test")

    @app.job("tick", group="ops")
    @every(seconds=1)
    async def tick(ctx): ...

    return app
