"""Ownership of group settings after any sequence of declarations and changes."""

from headway_decisions.declaring import ownership
from headway_decisions.declaring.ownership import GROUP_DEFAULTS, GroupSettings
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

VALUES = {
    "max_active": st.integers(0, 3),
    "priority": st.integers(0, 31),
    "enabled": st.booleans(),
    "rate": st.just({"count": 1, "period_seconds": 60}),
}
STATED = st.fixed_dictionaries({}, optional=VALUES)
FRESH = GroupSettings(name="g", values=dict(GROUP_DEFAULTS))


@given(
    declarations=st.lists(st.tuples(st.sampled_from("ab"), STATED), max_size=8),
    operators=st.frozensets(st.sampled_from(sorted(GROUP_DEFAULTS))),
)
def test_each_field_is_its_operators_or_its_latest_statements_or_the_default(
    declarations, operators
):
    marked = dict.fromkeys(operators, "operator")
    group = structs.replace(FRESH, values={**FRESH.values, **marked}, operator_fields=operators)
    latest: dict[str, tuple[str, object]] = {}
    for app, stated in declarations:
        group = ownership.restate(group, stated, app=app)
        latest = {
            field: statement
            for field, statement in latest.items()
            if statement[0] != app or field in stated
        }
        latest |= {field: (app, value) for field, value in stated.items()}
    for owner in ownership.group_owners(group):
        code = latest.get(owner.field)
        if owner.field in operators:
            assert (owner.owner, owner.value) == ("operator", "operator")
        elif code is not None:
            assert (owner.owner, owner.application, owner.value) == ("code", *code)
        else:
            assert (owner.owner, owner.value) == ("default", GROUP_DEFAULTS[owner.field])
    returned = ownership.in_force(structs.replace(group, operator_fields=frozenset()))
    assert returned.values == {
        field: latest[field][1] if field in latest else default
        for field, default in GROUP_DEFAULTS.items()
    }
