"""The `headway` command: puts the services together, so it may import them all.

`main` is the entrance and turns every expected fault into one readable line; `services`
runs one service against URLs; `up` runs everything in one command on embedded servers.
"""
