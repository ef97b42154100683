"""Generated files in the repository are up to date."""

import shutil

from headway_contract.dead_letters import DeadLetterStatus
from headway_contract.work_queue import CancelResult, NamedWork

from generators.__main__ import ROOT, main
from generators.field_comments import comments_of
from generators.versions import COPIES


def test_generated_files_are_up_to_date(capsys):
    assert main(["--check"]) == 0, capsys.readouterr().err


def test_stale_missing_and_superfluous_files_are_named_and_repaired(tmp_path, capsys):
    for page in ("docs/concepts.md", "docs/states.md", "LICENSE", *COPIES):
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / page, tmp_path / page)
    assert main([], tmp_path) == main(["--check"], tmp_path) == 0
    schemas = tmp_path / "proto-schemas" / "schemas"
    (schemas / "superfluous.json").write_text("{}")
    (tmp_path / "docs" / "settings.md").write_text("stale")
    (tmp_path / "proto-schemas" / "asyncapi.json").unlink()
    states = tmp_path / "docs" / "states.md"
    states.write_text(states.read_text().replace("--> settled", "--> nowhere"))
    project = tmp_path / "pyproject.toml"
    project.write_text(project.read_text().replace('version = "', 'version = "9', 1))
    assert main(["--check"], tmp_path) == 1
    names = [line.partition(" ")[0] for line in capsys.readouterr().err.splitlines()]
    assert sorted(names) == sorted(
        [
            "docs/settings.md",
            "docs/states.md",
            "proto-schemas/asyncapi.json",
            "proto-schemas/schemas/superfluous.json",
            *map(str, COPIES),
        ]
    )
    assert main([], tmp_path) == main(["--check"], tmp_path) == 0


def test_a_comment_on_a_field_describes_it():
    assert comments_of(NamedWork) == {
        "cancel_repeated": "an earlier request already cancelled it"
    }, "a comment on the line of its field"
    assert comments_of(CancelResult)["result"].startswith("settled, asked_to_stop"), "above it"
    assert comments_of(DeadLetterStatus) == {}, "comments for tools"
