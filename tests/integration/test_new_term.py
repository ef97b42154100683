"""A new term of work comes from its definition to the order of each run."""

from headway import App, Client, manual
from headway.yaml_file import load_yaml

IN_YAML = """
app: shop
jobs:
  mail: {note: of the job}
manifests:
  m: {job: mail, manual: true}
  own: {job: mail, manual: true, note: its own}
"""


def test_yaml_states_a_note():
    assert [one.note for one in load_yaml(IN_YAML).manifests] == ["of the job", "its own"]


async def test_a_note_comes_to_the_order(world, nats_url):
    app, ordered = App("shop"), set()

    @app.job("mail", note="of the job")
    async def mail(ctx):
        ordered.add(ctx._ordered.note)

    app.schedule("m", job="mail", when=manual())
    app.schedule("own", job="mail", when=manual(), note="its own")
    await world.scheduler(app)
    await world.dispatcher()
    await world.worker(app)
    async with Client(nats_url) as client:
        await client.trigger("m")
        await client.trigger("own")
        found = await client.manifest("own")
    await world.until_settled(at_least=2)
    assert ordered == {"of the job", "its own"}
    assert found.definition["note"] == "its own"
