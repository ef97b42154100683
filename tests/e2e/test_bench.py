"""The scenarios of the benchmark report their figures."""

import pytest
from benchmarks.scenarios import SCENARIOS, measure


@pytest.mark.long
async def test_all_scenarios_have_figures():
    found = await measure(list(SCENARIOS), 100)
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
