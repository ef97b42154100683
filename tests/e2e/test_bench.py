"""`headway bench` reports the figures of every scenario."""

import json
import subprocess
import sys

import pytest


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headway_cli", "bench", *arguments],
        capture_output=True,
        text=True,
        timeout=115,
        check=False,
    )


@pytest.mark.long
def test_all_scenarios_are_reported_as_json(tmp_path):
    done = bench("--work", "100", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == ["enqueue", "drain", "latency", "burst"]
    assert found["drain"]["runs"] == found["burst"]["due_at_once"] == 100
    assert found["latency"]["triggers"] == 100
    assert 0 < found["latency"]["to_start_ms"]["p50"] <= found["latency"]["to_settled_ms"]["p99"]
    cost = found["drain"]["cost_each"]
    assert set(cost["processor_ms"]) == {
        "postgresql",
        "nats",
        "dispatcher",
        "scheduler",
        "worker 1",
    }
    assert min(cost["processor_ms"].values()) >= 0 < sum(cost["processor_ms"].values())
    # Each run inserts at least a work row, a run row and a history row.
    assert cost["row_operations"] > 3
    assert cost["messages_in"] > 1
    assert cost["wal_bytes"] > 100
    assert found["burst"]["to_start_seconds"]["p99"] <= found["burst"]["to_start_seconds"]["last"]


@pytest.mark.long
def test_a_table_is_printed_and_an_unknown_scenario_is_refused():
    done = bench("latency", "--work", "10")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].split() == ["scenario", "figure", "value"]
    assert "to start ms p50" in done.stdout
    wrong = bench("dran")
    assert wrong.returncode == 2
    assert "'dran' is not one of 'enqueue', 'drain', 'latency', 'burst'" in wrong.stderr
