"""`python -m headway_cli` is the `headway` command."""

from headway_cli.main import main

main()
