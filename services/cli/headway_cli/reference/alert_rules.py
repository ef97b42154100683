"""Alert rules for Prometheus: the list, and the files that are made of it.

python -m headway_cli.reference.alert_rules FOLDER            write them into FOLDER (deploy)
python -m headway_cli.reference.alert_rules FOLDER --check    fail if one has drifted
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

RULES = Path("prometheus", "headway.rules.yaml")
PROMETHEUS_RULE = Path("k8s", "monitoring", "prometheus-rule.yaml")

_NOTE = "# Written by `./justw generate` from headway_cli/reference/alert_rules.py; do not edit.\n"
_RULE_HEAD = """\
# Needs the custom resources of the Prometheus operator.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: headway
spec:
"""


class Alert(Struct, frozen=True, kw_only=True):
    """A condition that somebody should hear of."""

    name: str
    condition: str
    lasting: str
    severity: Literal["warning", "critical"]
    meaning: str


ALERTS = (
    Alert(
        name="HeadwayLate",
        condition="histogram_quantile(0.99, sum by (le) "
        "(rate(headway_dispatcher_start_lateness_seconds_bucket[10m]))) > 60",
        lasting="10m",
        severity="warning",
        meaning="One of a hundred scheduled runs begins more than a minute late: look at what "
        "waits and why (`headway_dispatcher_waiting_works`).",
    ),
    Alert(
        name="HeadwayNotDeciding",
        condition="max(headway_scheduler_due_age_seconds) > 30 "
        "or absent(headway_scheduler_due_age_seconds)",
        lasting="2m",
        severity="critical",
        meaning="Manifests are due and no scheduler decides: none runs, none leads, or PostgreSQL "
        "is away.",
    ),
    Alert(
        name="HeadwayNoLeader",
        condition="max(headway_scheduler_leader) < 1 "
        "and on () max(headway_scheduler_due_manifests) > 0",
        lasting="1m",
        severity="critical",
        meaning="Manifests are due, and none of the schedulers has taken the lead.",
    ),
    Alert(
        name="HeadwayOutboxStuck",
        condition='max by (__name__) ({__name__=~"headway_(scheduler|dispatcher)'
        '_outbox_age_seconds"}) > 30',
        lasting="2m",
        severity="critical",
        meaning="What was decided is not published: NATS is away, or a stream is full "
        "(`headway_dispatcher_stream_bytes`).",
    ),
    Alert(
        name="HeadwayDeadLetters",
        condition="max by (group) (headway_dispatcher_dead_letters_awaiting) > 0",
        lasting="0m",
        severity="warning",
        meaning="Work needs a person: `headway dead-letters`.",
    ),
    Alert(
        name="HeadwayNoWorker",
        condition='max by (group) (headway_dispatcher_waiting_works{reason="no_worker"}) > 0',
        lasting="5m",
        severity="warning",
        meaning="Work waits for a job that no live worker serves.",
    ),
    Alert(
        name="HeadwayProjectorLags",
        condition="max by (consumer) (headway_dispatcher_consumer_pending_messages) > 10000",
        lasting="5m",
        severity="warning",
        meaning="What workers tell is taken in more slowly than it comes; runs seem to last longer "
        "than they do.",
    ),
    Alert(
        name="HeadwayNotDispatching",
        condition="absent(headway_dispatcher_worker_slots)",
        lasting="2m",
        severity="critical",
        meaning="No dispatcher is scraped, or none can read PostgreSQL: nothing that is due runs.",
    ),
    Alert(
        name="HeadwayMissedFires",
        condition='sum(increase(headway_scheduler_skips_total{reason="missed"}[15m])) > 0',
        lasting="0m",
        severity="warning",
        meaning="Due times passed by and are not made good: `headway explain` of the manifest says "
        "when. No scheduler decided in time, or PostgreSQL was away.",
    ),
    Alert(
        name="HeadwayPassFails",
        condition="sum by (pass) (increase(headway_scheduler_pass_failures_total[10m])) > 5 "
        "or sum by (pass) (increase(headway_dispatcher_pass_failures_total[10m])) > 5",
        lasting="5m",
        severity="warning",
        meaning="A pass of a service fails again and again: its log says why.",
    ),
    Alert(
        name="HeadwayStreamFull",
        condition="max by (stream) (headway_dispatcher_stream_bytes) "
        "/ max by (stream) (headway_dispatcher_stream_limit_bytes) > 0.8",
        lasting="5m",
        severity="critical",
        meaning="A stream is nearly full and will refuse messages: whoever reads it is behind, or "
        "`HEADWAY_STREAM_MAX_BYTES` is too small.",
    ),
    Alert(
        name="HeadwayRejected",
        condition="max(headway_scheduler_rejected_messages) > 0 "
        "or max(headway_dispatcher_rejected_messages) > 0",
        lasting="0m",
        severity="warning",
        meaning="Messages could not be handled and were put aside: see the tables `rejected`.",
    ),
    Alert(
        name="HeadwayNotificationsLost",
        condition='sum(increase(headway_scheduler_notifications_total{outcome="given_up"}[1h])) > 0'
        " or max(headway_scheduler_pending_notifications_age_seconds) > 900",
        lasting="0m",
        severity="warning",
        meaning="The webhook does not take notifications: `headway notify test` says why, "
        "`headway audit --action 'notification.*'` which were given up.",
    ),
)


def files() -> dict[Path, str]:
    """Each file by its path in the folder of the deployment."""
    groups = list(_groups())
    plain = "".join(f"{line}\n" for line in groups)
    indented = "".join(f"  {line}\n" for line in groups)
    return {RULES: _NOTE + plain, PROMETHEUS_RULE: _NOTE + _RULE_HEAD + indented}


def _groups() -> Iterator[str]:
    """The rules in YAML; a quoted text of JSON is one of YAML, too."""
    yield "groups:"
    yield "  - name: headway"
    yield "    rules:"
    for alert in ALERTS:
        yield f"      - alert: {alert.name}"
        yield f"        expr: {json.dumps(alert.condition)}"
        yield f"        for: {alert.lasting}"
        yield "        labels:"
        yield f"          severity: {alert.severity}"
        yield "        annotations:"
        yield f"          summary: {json.dumps(alert.meaning)}"


def main(arguments: list[str]) -> int:
    """Write or check."""
    folder = Path(next(one for one in arguments if one != "--check"))
    if "--check" not in arguments:
        for path, text in files().items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
        return 0
    drifted = [
        folder / path
        for path, text in files().items()
        if not (folder / path).is_file() or (folder / path).read_text(encoding="utf-8") != text
    ]
    for path in drifted:
        sys.stderr.write(f"{path} has drifted: run './justw generate' and commit the result\n")
    return 1 if drifted else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
