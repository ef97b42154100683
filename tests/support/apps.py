"""Small apps, and definitions made of them."""

from headway import App, every
from headway.define.definitions import API_OWNER, Definitions
from msgspec import structs


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
