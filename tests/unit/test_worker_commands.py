"""Workers in other languages beside `up`: restarts and requirements."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from headway_cli.up.processes import next_pause

BUILD = Path(__file__).parents[2] / "libs" / "worker-typescript" / "build"


@pytest.mark.parametrize(
    ("pause", "ran_for", "expected"),
    [(None, 0.1, 0.5), (0.5, 0.1, 1), (16, 1, 30), (30, 59, 30), (30, 60, 0.5)],
)
def test_the_pause_grows_until_a_program_has_run_for_a_while(pause, ran_for, expected):
    assert next_pause(pause, ran_for) == expected


@pytest.mark.parametrize(
    ("node", "complaint"),
    [
        (None, "there is no node on PATH"),
        ("v18.20.0", "this is Node v18.20.0"),
    ],
)
def test_a_missing_node_is_reported_in_one_line(tmp_path, node, complaint):
    for program in ("dirname", "npm", "sh"):
        (tmp_path / program).symlink_to(shutil.which(program) or "/bin/true")
    if node is not None:
        (tmp_path / "node").write_text(f"#!/bin/sh\necho {node}\n")
        (tmp_path / "node").chmod(0o755)
    done = subprocess.run(
        [BUILD],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("headway: the TypeScript worker needs Node 20 or newer")
    assert complaint in line
