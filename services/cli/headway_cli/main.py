"""The entrance of the `headway` command."""

import sys


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and leave with its exit code."""
    try:
        # Here and not above, so that Ctrl-C while all of it loads is no traceback either.
        from headway_cli.commands import run  # noqa: PLC0415

        code = run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
