"""Checks of this machine: its settings, and the data folder of a `headway up`."""

import stat
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from headway_cli.doctor.findings import Area, Finding
from headway_cli.serve.known_settings import SECTIONS, is_wrong, settings_of
from headway_cli.serve.running import LOCAL_NAME, NOTE_NAME, NothingRuns, is_alive, read_note

_AREA = Area("here")
_SECRETS = (NOTE_NAME, LOCAL_NAME, "postgres.password", "nats.password", "nats.conf")


def check_local(data: Path) -> list[Finding]:
    """Check settings and the data folder."""
    return [
        _AREA.ok("version", f"Headway {metadata.version('headway-cli')}"),
        *_check_settings(),
        *(_check_folder(data) if data.is_dir() else ()),
    ]


def _check_settings() -> list[Finding]:
    found = [setting for section in SECTIONS for setting in settings_of(section)]
    wrong = {setting.variable: setting.problem for setting in found if is_wrong(setting)}
    if not wrong:
        number = sum(setting.source not in (None, "default") for setting in found)
        return [_AREA.ok("settings", f"{number} set in the environment, all readable")]
    return [
        _AREA.trouble(
            "settings",
            f"{variable}: {problem}",
            "correct it; 'headway settings' shows all settings, docs/settings.md explains them",
        )
        for variable, problem in wrong.items()
    ]


def _check_folder(data: Path) -> Iterator[Finding]:
    for path in (data / name for name in _SECRETS):
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
            yield _AREA.trouble(
                "secrets", f"{path} can be read by others", f"run: chmod 600 {path}"
            )
    try:
        note = read_note(data)
    except NothingRuns as error:
        yield _AREA.trouble("folder", str(error), "start 'headway up' again")
        return
    if note is not None and not is_alive(note.pid):
        yield _AREA.warning(
            "folder",
            f"the 'headway up' of {data} ended without a clean stop",
            "start it again: it continues where it was",
        )
