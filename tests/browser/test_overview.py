"""The first page: whether all is well, seen without a reload."""

from playwright.async_api import Page, expect
from support.browsers import System, look_closely


async def test_it_tells_how_things_stand(system: System, page: Page):
    await page.goto("/")
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    passes = page.get_by_role("region", name="Passes")
    await expect(passes.get_by_role("row").filter(has_text="Tick")).to_contain_text("ok")
    await expect(page.get_by_role("link", name="nightly-report")).to_be_visible()
    await expect(page.get_by_text("No worker is alive")).to_have_count(0)


async def test_what_happens_shows_without_a_reload(system: System, page: Page):
    await page.goto("/")
    await expect(page.locator("body[data-listening]")).to_be_attached()
    await page.evaluate("() => { window.loaded = 'once' }")
    failing = page.locator("section").filter(has=page.get_by_role("heading", name="Failing"))
    await expect(failing).to_contain_text("No run has failed")

    await trigger(system, "import")

    await expect(failing.get_by_role("link", name="broken")).to_be_visible()
    letters = page.locator("section").filter(has=page.get_by_role("heading", name="Dead letters"))
    await expect(letters.get_by_role("link", name="ValueError")).to_be_visible()
    await expect(letters).to_contain_text("<img src=x onerror")
    assert await page.evaluate("() => window.loaded") == "once"
    await look_closely(page, "overview")


async def trigger(system: System, manifest: str) -> None:
    async with system.console.signed_in("operator") as client:
        answer = await client.post(f"/api/v1/manifests/{manifest}/trigger", json={})
    assert answer.status_code == 200, answer.text
