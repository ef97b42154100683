"""Routes of the API: declared once, and fields read from a request."""

import re
from collections import Counter

import pytest
from headway_console.api import ENDPOINTS
from headway_console.api.forwarded import FORWARDED
from headway_console.api.request_fields import Given, read_fields
from headway_contract import subjects
from headway_errors import Invalid

BY_NAME = {endpoint.name: endpoint for endpoint in ENDPOINTS}
# Services and workers send these to each other.
AMONG_SERVICES = {
    subjects.LEASE_QUESTION,
    subjects.RECONCILE_QUESTION,
    subjects.ACTIVATION_QUESTION,
    subjects.ORIGIN_QUESTION,
}


def test_every_subject_that_a_person_may_ask_on_has_a_route():
    known = {
        value
        for name, value in vars(subjects).items()
        if isinstance(value, str) and name.endswith(("_QUESTION", "_REQUEST"))
    }
    assert {endpoint.subject for endpoint in FORWARDED} == known - AMONG_SERVICES


def test_no_route_is_declared_twice():
    names = Counter(endpoint.name for endpoint in ENDPOINTS)
    paths = Counter((found.method, re.sub(r"{\w+}", "{}", found.path)) for found in ENDPOINTS)
    assert [name for name, count in (names + paths).items() if count > 1] == []


def test_no_get_changes_anything():
    assert {found.role for found in ENDPOINTS if found.method == "GET"} == {"viewer"}
    asking = {found.name for found in FORWARDED if found.role == "viewer"}
    posts = {name for name in asking if BY_NAME[name].method != "GET"}
    assert posts == {"plan", "check_input"}


def test_a_body_cannot_name_the_actor():
    with pytest.raises(Invalid, match="unknown field `actor`"):
        read_fields(
            BY_NAME["trigger"].shape, Given(path={"manifest": "m"}, body=b'{"actor": "eve"}')
        )
    assert read_fields(BY_NAME["trigger"].shape, Given(path={"manifest": "m"}))["manifest"] == "m"


def test_a_time_without_an_offset_is_refused():
    query = [("created_after", "2027-01-01T00:00:00")]
    with pytest.raises(Invalid, match="created_after: Expected `datetime` with a time"):
        read_fields(BY_NAME["list_dead_letters"].shape, Given(path={}, query=query))
