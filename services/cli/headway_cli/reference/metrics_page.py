"""Writes the page of all metrics, or checks that it is up to date.

python -m headway_cli.reference.metrics_page PATH            write it
python -m headway_cli.reference.metrics_page PATH --check    fail if it has drifted
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from headway_dispatcher.metrics import MEASURES as DISPATCHER
from headway_scheduler.metrics import MEASURES as SCHEDULER
from headway_service_kit.metrics import Measure
from headway_service_kit.own_metrics import own_measures

from headway_cli.reference.alert_rules import ALERTS
from headway_cli.serve.worker_metrics import MEASURES as WORKER

_HEAD = """\
# Metrics

*Written by `./justw generate` from the code that measures; do not edit.*

Every service answers `/metrics` in the text format of Prometheus at its health address
([`HEADWAY_HEALTH_ADDRESS`](settings.md)). `headway up` answers there for its scheduler and its
dispatcher; its worker has an address of its own.

- Counters are of the process: sum over replicas, and take rates. What a transaction did is counted
  once it is committed.
- Gauges that are read from PostgreSQL or NATS tell how all of it stands, and are the same from each
  replica: take the `max`, never the sum. They are asked for by one cheap query at a scrape, at most
  every `HEADWAY_METRICS_AGE_SECONDS`. Without PostgreSQL or NATS they are left out, and
  `…_metrics_source_up` says so; everything else is told nevertheless.
- Labels are groups, jobs, reasons and outcomes; never manifests, work or runs. `headway explain`
  and the traces know those.

In Kubernetes the pods carry the annotations `prometheus.io/scrape`, `prometheus.io/port` and
`prometheus.io/path`. The policy `headway-metrics` lets pods with the label
`app.kubernetes.io/name: prometheus` reach them, from namespaces with the label
`headway.dev/metrics: "true"`. For the Prometheus operator there is
[a PodMonitor](../deploy/k8s/monitoring/pod-monitor.yaml), with the alert rules below: name
`monitoring` under the `components` of your overlay.
"""


def every_measure() -> dict[str, list[Measure]]:
    """All measures, by the service."""
    own = {name: own_measures(name) for name in ("scheduler", "dispatcher", "console")}
    return {
        "scheduler": [*SCHEDULER, *own["scheduler"].all(), own["scheduler"].answers],
        "dispatcher": [*DISPATCHER, *own["dispatcher"].all(), own["dispatcher"].answers],
        "console": [*own["console"].all(), own["console"].answers],
        "worker": list(WORKER),
    }


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for service, measures in every_measure().items():
        parts.append(f"## {service.capitalize()}\n\n{_table(measures)}")
    alerts = "\n".join(
        f"| {one.name} | {one.severity} | `{one.condition.replace('|', chr(92) + '|')}` "
        f"| {one.lasting} | {one.meaning} |"
        for one in ALERTS
    )
    parts.append(
        "## Alerts worth having\n\nThe numbers are a beginning; yours depend on your work. The "
        "same rules are a file for Prometheus,\n[headway.rules.yaml](../deploy/prometheus/"
        "headway.rules.yaml), and a PrometheusRule beside the PodMonitor.\n\n"
        "| alert | severity | condition | for | what it means |\n|---|---|---|---|---|\n"
        f"{alerts}\n"
    )
    return "\n".join(parts)


def _table(measures: Sequence[Measure]) -> str:
    rows = "\n".join(
        f"| `{one.name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels)} "
        f"| {one.description} |"
        for one in measures
    )
    return f"| metric | kind | labels | what it tells |\n|---|---|---|---|\n{rows}\n"


def main(arguments: list[str]) -> int:
    """Write or check."""
    path = Path(next(one for one in arguments if one != "--check"))
    if "--check" not in arguments:
        path.write_text(page(), encoding="utf-8")
        return 0
    if path.is_file() and path.read_text(encoding="utf-8") == page():
        return 0
    sys.stderr.write(f"{path} has drifted: run './justw generate' and commit the result\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
