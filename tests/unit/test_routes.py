"""The table of routes: complete, and the same read forwards and backwards."""

import re
from pathlib import Path
from uuid import UUID

import msgspec
import pytest
from headway_contract import dispatching, http, scheduling, subjects
from headway_contract.registry import CONTROL
from headway_contract.routes import AMONG_SERVICES, FORWARDED, Route
from hypothesis import given
from hypothesis import strategies as st

SAMPLES = Path(__file__).parents[2] / "proto-schemas" / "samples" / "v1"
BY_NAME = {route.name: route for route in FORWARDED}
QUESTIONS = {struct: name for name, struct in CONTROL.items() if not name.endswith(".answer")}


def there_and_back(route: Route, question: msgspec.Struct) -> msgspec.Struct:
    """A question, sent as HTTP and read again."""
    if route.items and isinstance(question.after, str) and question.after:
        # To a client a place is what the server has called it.
        sent = http.write(
            route, msgspec.structs.replace(question, after=http.cursor_of(question.after))
        )
    else:
        sent = http.write(route, question)
    pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", f"/api/v1{route.path}")
    path = re.fullmatch(pattern, sent.path).groupdict()
    return http.read(
        route, path=path, query=sent.query, body=sent.body or b"", actor=getattr(question, "actor", "")
    )  # fmt: skip


def test_every_subject_that_a_person_may_ask_on_has_a_route():
    known = {
        value
        for name, value in vars(subjects).items()
        if isinstance(value, str) and name.endswith(("_QUESTION", "_REQUEST"))
    }
    assert {route.subject for route in FORWARDED} == known - AMONG_SERVICES


def test_no_two_routes_are_called_the_same():
    assert len({route.name for route in FORWARDED}) == len(FORWARDED)
    assert len({(route.method, re.sub(r"{\w+}", "{}", route.path)) for route in FORWARDED}) == len(
        FORWARDED
    )


def test_who_only_looks_changes_nothing():
    changing = {r.name for r in FORWARDED if "actor" in r.question.__struct_fields__} - {"plan"}
    assert {r.name for r in FORWARDED if r.role != "viewer"} == changing
    assert not changing & {r.name for r in FORWARDED if r.method == "GET"}


@pytest.mark.parametrize("route", FORWARDED, ids=lambda route: route.name)
def test_the_golden_question_comes_through_unchanged(route):
    sample = (SAMPLES / f"{QUESTIONS[route.question]}.json").read_bytes()
    question = msgspec.json.decode(sample, type=route.question)
    left_out = {name: default(question, name) for name in route.hidden}
    for name in http.path_fields(route):
        if getattr(question, name) is None:
            left_out[name] = UUID(int=1) if name == "work" else "x"
    question = msgspec.structs.replace(question, **left_out)
    assert there_and_back(route, question) == question
    assert http.route_for(route.subject, question) is route


def default(question: msgspec.Struct, name: str) -> object:
    [field] = [one for one in msgspec.structs.fields(question) if one.name == name]
    return http.default_of(field)


@given(
    st.builds(
        scheduling.ChangeGroupRequest,
        group=st.just("ops"),
        max_active=st.sampled_from([msgspec.UNSET, None, 0, 5]),
        rate=st.sampled_from([msgspec.UNSET, None]),
        enabled=st.sampled_from([msgspec.UNSET, True, False]),
    )
)
def test_what_is_not_stated_is_not_the_same_as_none(request):
    assert there_and_back(BY_NAME["change_group"], request) == request


@given(
    st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=50),
    st.sampled_from(["null", "true", "0", "ops"]),
)
def test_filters_and_places_come_through_whatever_they_are(place, group):
    question = dispatching.DeadLettersQuestion(
        filter=dispatching.LetterFilter(group=group, job=group), after=place
    )
    assert there_and_back(BY_NAME["list_dead_letters"], question) == question


@pytest.mark.parametrize("cursor", ["#", "a", "////", "_w", "äöü", "Zm9v=Zm9v"])
def test_a_cursor_that_is_none_is_told(cursor):
    with pytest.raises(http.InvalidRequest, match="this is no cursor"):
        http.place_of(cursor)


def test_the_actor_is_never_what_the_body_says():
    with pytest.raises(http.InvalidRequest, match="unknown field `actor`"):
        http.read(BY_NAME["trigger"], path={"manifest": "m"}, body=b'{"actor": "eve"}', actor="ada")
    asked = http.read(BY_NAME["trigger"], path={"manifest": "m"}, body=b"", actor="ada")
    assert asked == scheduling.TriggerRequest(manifest="m", actor="ada")


def test_a_time_without_an_offset_is_refused():
    query = [("created_after", "2027-01-01T00:00:00")]
    with pytest.raises(http.InvalidRequest, match="created_after: Expected `datetime` with a time"):
        http.read(BY_NAME["list_dead_letters"], path={}, query=query)
