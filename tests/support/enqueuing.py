"""An application whose work is enqueued."""

from headway import App, retry


def app_with_jobs() -> App:
    app = App("shop")

    @app.job("mail", group="letters", priority=3, timeout=90, cancel_grace=5)
    @retry(attempts=5, interval=7)
    async def mail(ctx, order: int): ...

    @app.job("sweep")
    async def sweep(ctx): ...

    @app.job("free")
    async def free(ctx, given): ...

    return app
