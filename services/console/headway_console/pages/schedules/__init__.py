"""Schedules: all of them, and one with its calendar, its settings and what can be done with it."""

from headway_console.pages.schedules import actions, detail, listing
from headway_console.pages.shell import Page

PAGE = Page(
    title="Schedules",
    path="/schedules",
    handlers=(listing.schedules, detail.schedule, *actions.HANDLERS),
    key="s",
)
