"""All misfits of a value are named."""

import msgspec
from headway_contract.fitting import Misfit, find_misfits, problem_of


class TestFitting:
    class Inner(msgspec.Struct, forbid_unknown_fields=True):
        size: int = 3
        name: str = "x"

    class Outer(msgspec.Struct):
        inner: "TestFitting.Inner | None" = None
        count: int = 0

    def test_misfits_are_named_at_every_level(self):
        given = {"inner": {"size": "x", "name": "y", "more": 1}, "count": 5}
        assert find_misfits(given, self.Outer) == [
            Misfit(("inner",), "has the unknown field `more`: use size, name"),
            Misfit(("inner", "size"), "'x' is not valid: use a whole number"),
        ]

    def test_nothing_raises(self):
        for given in (object(), "\ud800", 10**5000, [[]]):
            assert problem_of(given, int) is not None
