"""The demo with a job in TypeScript: run it with `./justw demo --with-typescript`.

The body of `greet-typescript` is in `libs/worker-typescript/example/demo_worker.ts`;
its dependent runs in Python.
"""

import msgspec
from demo_app import app
from headway import every


class Person(msgspec.Struct):
    name: str


@app.job("greet-typescript", group="greetings", elsewhere=True)
def greet(ctx, person: Person):
    """Runs in the TypeScript worker."""


@app.job("count-greetings", group="greetings", description="Runs in Python after each greeting.")
async def count_greetings(ctx):
    ctx.log.info("somebody was greeted in TypeScript")


app.schedule(
    "greeting", job="greet-typescript", when=every(seconds=3), input=Person(name="Ada")
).then("greeting-counted", job=count_greetings)
