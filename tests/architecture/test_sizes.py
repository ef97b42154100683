"""No file of Python code grows beyond what one can read at once."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
AREAS = ("libs", "services", "proto-schemas", "tests", "docs", "examples", "deploy")
MOST_LINES = 400


def python_files() -> list[Path]:
    return [
        path
        for area in AREAS
        for path in sorted((ROOT / area).rglob("*.py"))
        if "node_modules" not in path.parts
    ]


def too_long(files: list[Path]) -> dict[str, int]:
    lengths = {str(file): len(file.read_text("utf-8").splitlines()) for file in files}
    return {file: length for file, length in lengths.items() if length > MOST_LINES}


def test_no_file_has_more_than_400_lines():
    files = python_files()
    assert len(files) > 500
    assert too_long(files) == {}


def test_the_check_itself_bites(tmp_path):
    file = tmp_path / "long.py"
    file.write_text("pass\n" * MOST_LINES)
    assert too_long([file]) == {}
    file.write_text("pass\n" * (MOST_LINES + 1))
    assert too_long([file]) == {str(file): MOST_LINES + 1}
