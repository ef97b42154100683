"""Several writes as one statement."""

import pytest
from headway_postgres_kit.statement_batch import combine


def test_one_statement_stays_as_it_is():
    assert combine(("INSERT INTO a VALUES ($1)",)) == "INSERT INTO a VALUES ($1)"


def test_the_parameters_of_all_stand_in_a_row():
    combined = combine(("UPDATE a SET b = $2 WHERE c = $1", "DELETE FROM d WHERE e = $1"))
    assert " ".join(combined.split()) == (
        "WITH part_1 AS ( DELETE FROM d WHERE e = $3 ) UPDATE a SET b = $2 WHERE c = $1"
    )


def test_the_with_clause_of_the_first_is_kept():
    combined = combine(("-- a note\nWITH x AS (SELECT $1) INSERT INTO a TABLE x", "DELETE FROM d"))
    assert " ".join(combined.split()) == (
        "WITH part_1 AS ( DELETE FROM d ), x AS (SELECT $1) INSERT INTO a TABLE x"
    )


def test_a_second_with_is_refused():
    with pytest.raises(ValueError, match="only the first"):
        combine(("DELETE FROM a", "WITH x AS (SELECT 1) INSERT INTO a TABLE x"))
