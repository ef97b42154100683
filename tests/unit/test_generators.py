"""Generated files in the repository are up to date."""

import shutil

from generators.__main__ import ROOT, main


def test_generated_files_are_up_to_date(capsys):
    assert main(["--check"]) == 0, capsys.readouterr().err


def test_stale_missing_and_superfluous_files_are_named_and_repaired(tmp_path, capsys):
    (tmp_path / "docs").mkdir()
    for page in ("README.md", "docs/states.md"):
        shutil.copy(ROOT / page, tmp_path / page)
    assert main([], tmp_path) == main(["--check"], tmp_path) == 0
    schemas = tmp_path / "proto-schemas" / "schemas"
    (schemas / "superfluous.json").write_text("{}")
    (tmp_path / "docs" / "settings.md").write_text("stale")
    (tmp_path / "proto-schemas" / "asyncapi.json").unlink()
    states = tmp_path / "docs" / "states.md"
    states.write_text(states.read_text().replace("--> settled", "--> nowhere"))
    assert main(["--check"], tmp_path) == 1
    names = [line.partition(" ")[0] for line in capsys.readouterr().err.splitlines()]
    assert sorted(names) == [
        "docs/settings.md",
        "docs/states.md",
        "proto-schemas/asyncapi.json",
        "proto-schemas/schemas/superfluous.json",
    ]
    assert main([], tmp_path) == main(["--check"], tmp_path) == 0
