"""The machine itself: the settings that hold here, and the folder of a `headway up`."""

import stat
from importlib import metadata
from pathlib import Path

from msgspec import Struct

from headway_cli.doctor.findings import Area, Finding
from headway_cli.operate.settings import is_wrong, settings_of
from headway_cli.reference.known_settings import SECTIONS
from headway_cli.serve.running import LOCAL_NAME, NOTE_NAME, NothingRuns, is_alive, read_note

_AREA = Area("here")
# The passwords of embedded servers; the configuration of NATS holds its one, too.
_PASSWORDS = ("postgres.password", "nats.password", "nats.conf")


class FolderFacts(Struct, frozen=True, kw_only=True):
    """The data folder of an `up`. `problem` says why its note cannot be read."""

    folder: str
    exists: bool = False
    noted: bool = False
    alive: bool = False
    open_files: list[str] = []
    problem: str = ""


class MachineFacts(Struct, frozen=True, kw_only=True):
    """What is set here, and by which version."""

    version: str
    settings: int
    wrong: dict[str, str]
    folder: FolderFacts


def gather_machine(data: Path) -> MachineFacts:
    """Look at the environment and the data folder."""
    found = [one for section in SECTIONS for one in settings_of(section)]
    return MachineFacts(
        version=metadata.version("headway-cli"),
        settings=sum(one.source not in (None, "default") for one in found),
        wrong={one.variable: one.problem or "" for one in found if is_wrong(one)},
        folder=_folder(data),
    )


def _folder(data: Path) -> FolderFacts:
    secrets = [data / name for name in (NOTE_NAME, LOCAL_NAME, *_PASSWORDS)]
    open_files = [
        str(path)
        for path in secrets
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO)
    ]
    try:
        note = read_note(data)
    except NothingRuns as error:
        return FolderFacts(folder=str(data), exists=True, open_files=open_files, problem=str(error))
    return FolderFacts(
        folder=str(data),
        exists=data.is_dir(),
        noted=note is not None,
        alive=note is not None and is_alive(note.pid),
        open_files=open_files,
    )


def judge_machine(facts: MachineFacts) -> list[Finding]:
    """Whether what is set can be read, and whether secrets are ours alone."""
    found = [_AREA.ok("version", f"Headway {facts.version}")]
    found += [
        _AREA.trouble(
            "settings",
            f"{variable}: {problem}",
            "correct it; 'headway settings' shows every setting, docs/settings.md what each means",
        )
        for variable, problem in facts.wrong.items()
    ]
    if not facts.wrong:
        found.append(_AREA.ok("settings", f"{facts.settings} set in the environment, all readable"))
    return [*found, *judge_folder(facts.folder)]


def judge_folder(facts: FolderFacts) -> list[Finding]:
    """How the folder of an `up` stands; nothing to say where there is none."""
    if facts.problem:
        return [_AREA.trouble("folder", facts.problem, "start 'headway up' again")]
    if not facts.exists:
        return []
    found = [
        _AREA.trouble("secrets", f"{path} can be read by others", f"run: chmod 600 {path}")
        for path in facts.open_files
    ]
    if facts.noted and not facts.alive:
        found.append(
            _AREA.warning(
                "folder",
                f"the 'headway up' of {facts.folder} has ended without a clean stop",
                "start it again: it takes up where it was",
            )
        )
    elif facts.alive:
        found.append(_AREA.ok("folder", f"a 'headway up' runs in {facts.folder}"))
    return found
