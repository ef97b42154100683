"""`headway init`: a small app, with the files that belong to it."""

from importlib.resources import files
from pathlib import Path

import click
from headway_clock import new_token
from headway_contract import InvalidName, check_name

from headway_cli.terminal import options
from headway_cli.terminal.output import print_answer

# The files, with the names of their templates. The template of the app is an app itself.
_FILES = {
    "app.py": "app.py",
    "compose.yaml": "compose.yaml",
    ".env": "env",
    ".gitignore": "gitignore",
}
_APP_NAME = "hello"


@click.command()
@click.argument("folder", default=".", type=click.Path(path_type=Path, file_okay=False))
@options.json_option
@options.debug_option
def init(folder: Path, as_json: bool) -> None:
    """Write a small app, and files that belong to it.

    The files are app.py, compose.yaml (PostgreSQL and NATS in containers), .env (new passwords for
    them) and .gitignore. FOLDER is created; by default it is the current one. Existing files are
    never changed.
    """
    existing = [name for name in _FILES if (folder / name).exists()]
    if existing:
        raise click.UsageError(
            f"{folder.absolute()} already has {', '.join(existing)}; nothing was changed: "
            "name a new folder, as in 'headway init jobs'"
        )
    try:
        _write(folder)
    except OSError as error:
        raise click.UsageError(f"cannot write {error.filename}: {error.strerror}") from error
    written = [str(folder / name) for name in _FILES]
    lines = [
        f"wrote {', '.join(written)}",
        *([f"  cd {folder}"] if folder != Path() else []),
        "  headway up app.py                          # run everything, until Ctrl-C",
        """  headway run report --input '"Ada"'         # run one job once, without a server""",
    ]
    print_answer({"files": written}, lambda: lines, as_json=as_json)


def _write(folder: Path) -> None:
    try:
        name = check_name("app", folder.absolute().name)
    except InvalidName:
        name = _APP_NAME
    filled = {"POSTGRES_SECRET": new_token(), "NATS_SECRET": new_token()}
    filled[f'App("{_APP_NAME}")'] = f'App("{name}")'
    folder.mkdir(parents=True, exist_ok=True)
    for file, template in _FILES.items():
        text = (files("headway_cli") / "operate" / "new_app" / template).read_text("utf-8")
        for placeholder, value in filled.items():
            text = text.replace(placeholder, value)
        path = folder / file
        path.touch(0o600 if file == ".env" else 0o666, exist_ok=False)
        path.write_text(text, "utf-8")
