"""Manifests: the list, and one with its calendar, settings and actions."""

from headway_console.pages.schedules import actions, detail
from headway_console.pages.shell import Page

PAGE = Page(
    title="Manifests",
    path="/schedules",
    handlers=(detail.schedules, detail.schedule, *actions.HANDLERS),
    key="s",
)
