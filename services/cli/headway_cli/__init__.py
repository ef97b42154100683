"""The `headway` command: puts the services together, so it may import them all.

`main` is the entrance, `commands` the list of commands, and `faults` turns every expected fault
into a line with its remedy. `services` holds what runs alone against URLs, `up` everything in one
command: `ground` is what it stands on (servers, schemas), `worker_process` its child, `summary`
what it knows of the work and `screen` what it shows. All other commands ask the services
(`asking`): `look_commands` change nothing, `change_commands` are the operator's, `work_commands`
and `letter_commands` are about work and what failed for good, `apply_commands` bring definitions;
they find an `up` by the note that it leaves (`running`). `top` is the live view, `doctor` says what
is wrong with a set-up. `confirming` asks before what cannot be undone, `progressing` shows what
takes long, `completion` serves the shell. `apps` finds the user's app, `settings` checks what the
user set, and `reaching` is how patient we are with servers.
"""
