"""Loading of the user's app, and its error messages."""

import sys

import pytest
from headway import App, InvalidDefinitions
from headway_cli.serve.find_app import AppNotFound, load_app

APP_FILE = "from headway import App\napp = App('shop')\n"
TWO = "from headway import App\nfirst, second = App('a'), App('b')\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Change to an empty folder; drop the modules imported from it afterwards."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    "target",
    [
        "orders.py",
        "orders.py:app",
        "./orders.py",
        "orders",
        "orders:app",
        "sub/inner.py",
        "sub.inner",
    ],
)
def test_an_app_is_found_by_file_or_module(here, target):
    (here / "orders.py").write_text(APP_FILE)
    (here / "sub").mkdir()
    (here / "sub" / "inner.py").write_text(APP_FILE)
    app = load_app(target)
    assert isinstance(app, App)
    assert app.name == "shop"


def test_one_of_several_is_found_by_name(here):
    (here / "pair.py").write_text(TWO)
    assert load_app("pair.py:second").name == "b"


def test_one_app_under_two_names_is_one(here):
    (here / "aliased.py").write_text(f"{APP_FILE}same = app\n")
    assert load_app("aliased").name == "shop"


def test_a_file_imports_its_neighbours_and_itself_only_once(here):
    (here / "sub").mkdir()
    (here / "sub" / "jobs.py").write_text("from shop_app import app\nnames = [app.name]\n")
    (here / "sub" / "shop_app.py").write_text(f"{APP_FILE}import jobs\n")
    app = load_app("sub/shop_app.py")
    assert sys.modules["jobs"].app is app


def test_a_file_called_headway_does_not_hide_headway(here):
    (here / "headway.py").write_text(APP_FILE)
    assert load_app("headway.py").name == "shop"
    assert sys.modules["headway"].App is App


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("import nonesuch_package", r"needs 'nonesuch_package', which is not installed.*line 1\)"),
        ("app = App(", r"'\(' was never closed \(broken\.py, line 1\)"),
        ("\nraise OSError('two\\nlines')", r"OSError: two lines \(broken\.py, line 2\)"),
        ("import sys\nsys.exit(0)", r"it exits when it is imported.*line 2\)"),
        ("from headway import App\nApp('a shop')", r"app name 'a shop' is not valid.*line 2\)"),
        ("from headway import App\nApp('a.b')", r"app name 'a\.b' is not valid.*line 2\)"),
        ("import json\njson.loads('{')", r"JSONDecodeError.*\(broken\.py, line 2\)"),
        ("pass", r"there is no headway\.App in broken.*write app = App"),
        (TWO, r"several apps in broken.* \(first, second\): name one, as in broken(\.py)?:first"),
    ],
)
@pytest.mark.parametrize("target", ["broken.py", "broken"])
def test_a_problem_of_a_module_is_one_line(here, source, complaint, target):
    (here / "broken.py").write_text(source)
    assert_complaint(target, complaint)


@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        ("nowhere.py", r"there is no file 'nowhere\.py': give the path"),
        ("nowhere", r"there is no module 'nowhere' here"),
        ("nowhere.deep", r"there is no module 'nowhere' here"),
        ("orders.deep", r"there is no module 'orders\.deep' here"),
        ("orders:nope", r"'nope' in orders is not a headway\.App: it has app"),
        ("orders.py:App", r"'App' in orders\.py is not a headway\.App: it has app"),
        ("./orders", r"'\./orders' is not an app: .* did you mean \./orders\.py\?"),
        ("", r"'' is not an app: give a file as in app\.py, or a module"),
        ("a b", r"'a b' is not an app"),
        ("..", r"'\.\.' is not an app"),
    ],
)
def test_where_there_is_no_app_the_remedy_is_named(here, target, complaint):
    (here / "orders.py").write_text(APP_FILE)
    assert_complaint(target, complaint)


def assert_complaint(target, complaint):
    with pytest.raises(AppNotFound, match=complaint) as caught:
        load_app(target)
    assert "\n" not in str(caught.value)


def test_ctrl_c_in_the_module_is_passed_on(here):
    (here / "stuck.py").write_text("raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load_app("stuck.py")


@pytest.mark.parametrize("name", ["shop.yaml", "shop.yml", "./sub/../shop.yaml"])
def test_an_app_may_be_a_yaml_file(here, name):
    (here / "sub").mkdir()
    (here / name).write_text(
        "app: shop\njobs: {work: }\nmanifests: {one: {job: work, manual: true}}"
    )
    app = load_app(name)
    assert app.name == "shop"
    assert [manifest.external_id for manifest in app.definitions().manifests] == ["one"]
    with pytest.raises(InvalidDefinitions, match=r"shop\.ya?ml declares jobs without bodies"):
        app.jobs  # noqa: B018


def test_a_missing_or_invalid_yaml_file_is_reported(here):
    assert_complaint("nowhere.yaml", r"there is no file 'nowhere\.yaml': give the path")
    (here / "wrong.yaml").write_text("app: shop\njobs: 5")
    with pytest.raises(InvalidDefinitions, match=r"wrong\.yaml:2: jobs is not valid"):
        load_app("wrong.yaml")
