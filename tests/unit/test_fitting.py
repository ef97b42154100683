"""Values are fitted into structs: the valid fields are kept, all misfits are named."""

import msgspec
from headway_contract.fitting import Misfit, fit, problem_of


class TestFitting:
    class Inner(msgspec.Struct, forbid_unknown_fields=True):
        size: int = 3
        name: str = "x"

    class Outer(msgspec.Struct):
        inner: "TestFitting.Inner | None" = None
        count: int = 0

    def test_valid_fields_are_kept_and_others_get_their_default(self):
        fitted = fit({"inner": {"size": "x", "name": "y", "more": 1}, "count": 5}, self.Outer)
        assert fitted.value == self.Outer(inner=self.Inner(name="y"), count=5)
        assert fitted.misfits == [
            Misfit(("inner",), "has the unknown field `more`: use size, name"),
            Misfit(("inner", "size"), "'x' is not valid: use a whole number"),
        ]

    def test_nothing_raises(self):
        for given in (object(), "\ud800", 10**5000, [[]]):
            assert problem_of(given, int) is not None
