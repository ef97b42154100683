"""The entry point of the `headway` command."""

import sys


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and exit with its code."""
    try:
        # Not above, so that Ctrl-C during the import does not print a traceback.
        from headway_cli.commands import run  # noqa: PLC0415

        code = run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
