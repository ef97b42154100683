"""The app that is measured: a job that does nothing, so that all cost is Headway's."""

from headway import App, manual

# One manifest for each question of the latency scenario: none ever waits for another's outcome.
ASKED = 200

app = App("headway-bench")


@app.job("nothing", group="bench")
async def nothing(ctx: object, number: int = 0) -> None:
    """Do nothing."""


app.schedule_many("ask", job="nothing", items=range(ASKED), key=str, when=manual())
