"""The `headway` command, which puts the services together.

`main` is the entry point, `commands` lists the commands, `errors` turns exceptions into lines with
a remedy. `terminal` has what commands share (options, output, times, confirmation); `serve` runs
services, finds a running Headway and asks it (`session`), or reaches its database (`servers`).
The other packages are commands by topic. They do not import each other, and of the services they
import only `wiring` and `public`.
"""
