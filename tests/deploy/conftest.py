"""The manifests as a cluster would get them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
Document = dict[str, Any]


def render_command() -> list[str]:
    """Whatever renders kustomize's files here."""
    if shutil.which("kubectl"):
        return ["kubectl", "kustomize"]
    if shutil.which("go"):
        return ["go", "run", "sigs.k8s.io/kustomize/kustomize/v5@v5.7.1", "build"]
    pytest.skip("there is neither kubectl nor go to render the manifests with")


def make_secrets(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `deploy/make-secrets` with the `headway` of this environment."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        [DEPLOY / "make-secrets", folder],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.fixture(scope="session")
def rendered(tmp_path_factory) -> list[Document]:
    """Every object of the development overlay, with secrets made for the occasion."""
    folder = tmp_path_factory.mktemp("k8s")
    shutil.copytree(DEPLOY / "k8s", folder / "k8s", ignore=shutil.ignore_patterns("secrets"))
    overlay = folder / "k8s" / "overlays" / "dev"
    make_secrets(overlay / "secrets")
    done = subprocess.run(
        [*render_command(), str(overlay)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


@pytest.fixture(scope="session")
def compose() -> Document:
    """The compose file, its anchors resolved."""
    read: Document = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return read
