"""Transition tables."""

import itertools
from pathlib import Path
from typing import get_args

import pytest
from headway_decisions.runs.transitions import (
    RUN_TRANSITIONS,
    TERMINAL,
    WORK_TRANSITIONS,
    IllegalMove,
    RunMove,
    RunState,
    WorkMove,
    WorkState,
    next_run_state,
    next_work_state,
)

from generators.diagrams import redraw, run_diagram, run_table, work_table


@pytest.mark.parametrize(
    ("state", "move"), list(itertools.product(get_args(RunState), get_args(RunMove))), ids=str
)
def test_a_run_moves_by_the_table_or_not_at_all(state, move):
    if (state, move) in RUN_TRANSITIONS:
        assert next_run_state(state, move) == RUN_TRANSITIONS[state, move]
    else:
        with pytest.raises(IllegalMove, match=state):
            next_run_state(state, move)


@pytest.mark.parametrize(
    ("state", "move"), list(itertools.product(get_args(WorkState), get_args(WorkMove))), ids=str
)
def test_work_moves_by_the_table_or_not_at_all(state, move):
    if (state, move) in WORK_TRANSITIONS:
        assert next_work_state(state, move) == WORK_TRANSITIONS[state, move]
    else:
        with pytest.raises(IllegalMove):
            next_work_state(state, move)


def test_terminal_states_do_not_change():
    assert not [state for state, _ in RUN_TRANSITIONS if state in TERMINAL]
    assert [move for state, move in WORK_TRANSITIONS if state == "settled"] == ["retried"], (
        "work begins a new round only when a person asks for it"
    )


def test_every_state_can_be_reached():
    assert {"pending", *RUN_TRANSITIONS.values()} == set(get_args(RunState))
    assert {"queued", *WORK_TRANSITIONS.values()} == set(get_args(WorkState))


def test_the_diagram_shows_every_move():
    assert run_diagram().count("-->") == len(RUN_TRANSITIONS) + 1 + len(TERMINAL)


def test_the_tables_tell_every_state_and_every_move():
    heads = 4
    states = len(get_args(RunState))
    assert len(run_table().split("\n")) == states + len(RUN_TRANSITIONS) + heads + 1
    states = len(get_args(WorkState))
    assert len(work_table().split("\n")) == states + len(WORK_TRANSITIONS) + heads + 1


@pytest.mark.parametrize("page", ["docs/concepts.md", "docs/states.md"])
def test_the_pages_are_as_the_tables_are(page):
    text = (Path(__file__).parents[2] / page).read_text()
    assert redraw(text) == text
    assert redraw(text.replace("--> settled", "--> nowhere")) == text
