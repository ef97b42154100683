"""The routes of the API: each declared once, and what is read from a request."""

import re
from collections import Counter

import pytest
from headway_console.api import ENDPOINTS
from headway_contract import http, scheduling, subjects
from headway_contract.routes import AMONG_SERVICES, FORWARDED

BY_NAME = {endpoint.route.name: endpoint.route for endpoint in ENDPOINTS}


def test_every_subject_that_a_person_may_ask_on_has_a_route():
    known = {
        value
        for name, value in vars(subjects).items()
        if isinstance(value, str) and name.endswith(("_QUESTION", "_REQUEST"))
    }
    assert {route.subject for route in FORWARDED} == known - AMONG_SERVICES


def test_no_route_is_declared_twice():
    routes = [endpoint.route for endpoint in ENDPOINTS]
    names = Counter(route.name for route in routes)
    paths = Counter((route.method, re.sub(r"{\w+}", "{}", route.path)) for route in routes)
    assert [name for name, count in (names + paths).items() if count > 1] == []


def test_who_only_looks_changes_nothing():
    changing = {r.name for r in FORWARDED if "actor" in r.question.__struct_fields__} - {"plan"}
    assert {r.name for r in FORWARDED if r.role != "viewer"} == changing
    assert not changing & {r.name for r in FORWARDED if r.method == "GET"}


def test_the_actor_is_never_what_the_body_says():
    with pytest.raises(http.InvalidRequest, match="unknown field `actor`"):
        http.read(BY_NAME["trigger"], path={"manifest": "m"}, body=b'{"actor": "eve"}', actor="ada")
    asked = http.read(BY_NAME["trigger"], path={"manifest": "m"}, body=b"", actor="ada")
    assert asked == scheduling.TriggerRequest(manifest="m", actor="ada")


def test_a_time_without_an_offset_is_refused():
    query = [("created_after", "2027-01-01T00:00:00")]
    with pytest.raises(http.InvalidRequest, match="created_after: Expected `datetime` with a time"):
        http.read(BY_NAME["list_dead_letters"], path={}, query=query)
