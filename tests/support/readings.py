"""Everything that the console can list, each with the filters that people use, by a name."""

import hashlib
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from headway_console.reading import (
    applications,
    audit,
    dead_letters,
    events,
    failing_jobs,
    groups,
    ids,
    manifests,
    occurrences,
    pauses,
    runs,
    search,
    system,
    works,
)
from headway_console.reading.audit import AuditFilter
from headway_console.reading.events import EventFilter
from headway_console.reading.manifests import ManifestFilter
from headway_console.reading.runs import RunFilter
from headway_console.reading.works import WorkFilter
from headway_contract.dead_letters import LetterFilter
from headway_errors import NotFound
from headway_history.store import Numbers
from headway_postgres_kit import Connection

Reading = Callable[[Connection], Awaitable[Any]]


def named(what: str) -> UUID:
    """An id as the filled tables have it."""
    return UUID(hashlib.md5(what.encode()).hexdigest())


def readings(now: datetime, *, number: int = 1000) -> dict[str, Reading]:
    """Every list, of tables that were filled; `number` is a run in them that failed."""
    month = timedelta(days=30)
    heard = now - timedelta(minutes=1)
    run_lists = {
        "runs": RunFilter(),
        "runs: failed": RunFilter(state="failed"),
        "runs: cancelled (none)": RunFilter(state="cancelled"),
        "runs: in progress": RunFilter(state="in_progress"),
        "runs: of a job": RunFilter(job="job-07"),
        "runs: of a job, failed": RunFilter(job="job-00", state="failed"),
        "runs: of a job, failed (none)": RunFilter(job="job-07", state="failed"),
        "runs: of a group": RunFilter(group="group-07"),
        "runs: of a group (none)": RunFilter(group="nobody"),
        "runs: of a manifest": RunFilter(manifest_id=named("manifest 17")),
        "runs: of a worker": RunFilter(worker="worker-7"),
        "runs: of a worker (none)": RunFilter(worker="nobody"),
        "runs: that ended in a slot": RunFilter(
            ended_since=now - month / 2, ended_before=now - month / 2 + month / 1440
        ),
        "runs: that ended in the last slot": RunFilter(
            ended_since=now - month / 1440, ended_before=now, state="failed"
        ),
        "runs: that ended in a slot (none)": RunFilter(
            ended_since=now + month, ended_before=now + 2 * month
        ),
        "runs: of a work": RunFilter(work=named(f"work {number}")),
        "runs: of a work (none)": RunFilter(work=UUID(int=0)),
        "runs: of a day": RunFilter(since=now - month / 2, before=now - month / 2 + month / 30),
        "runs: of a manifest, failed": RunFilter(manifest_id=named("manifest 17"), state="failed"),
        "runs: of a group, failed": RunFilter(group="group-00", state="failed"),
        "runs: of a group, failed (none)": RunFilter(group="group-07", state="failed"),
        "runs: of a job and a day": RunFilter(
            job="job-07", since=now - month / 2, before=now - month / 2 + month / 30
        ),
        "runs: of a job and a group (none)": RunFilter(job="job-07", group="nobody"),
        "runs: text in error": RunFilter(text="no address", text_in="error"),
        "runs: text in error (none)": RunFilter(text="nobody", text_in="error"),
        "runs: text in input (none)": RunFilter(text="nobody", text_in="input"),
        "runs: text anywhere": RunFilter(text="order-99"),
        "runs: text anywhere (none)": RunFilter(text="nobody"),
    }
    manifest_lists = {
        "manifests": ManifestFilter(),
        "manifests: text": ManifestFilter(text="00017"),
        "manifests: of a group": ManifestFilter(group="group-07"),
        "manifests: label": ManifestFilter(label=("team=team-3",)),
        "manifests: disabled": ManifestFilter(state="disabled"),
        "manifests: outstanding": ManifestFilter(state="outstanding"),
    }
    work_lists = {
        "work": WorkFilter(),
        "work: of a group": WorkFilter(group="group-07"),
        "work: by reason": WorkFilter(reason="not_before"),
        "work: by reason (none)": WorkFilter(reason="nothing"),
        "work: of a job": WorkFilter(job="job-07"),
        "work: of a job (none)": WorkFilter(job="nobody"),
        "work: of a manifest": WorkFilter(manifest_id=named("manifest 17")),
        "work: dispatched": WorkFilter(state="dispatched"),
        "work: settled of a manifest": WorkFilter(
            state="settled", manifest_id=named("manifest 17")
        ),
        "work: settled": WorkFilter(state="settled"),
        "work: text": WorkFilter(text="order"),
        "work: text (none)": WorkFilter(text="nobody"),
        "work: text of a group (none)": WorkFilter(text="nobody", group="group-07"),
        "work: settled, text (none)": WorkFilter(state="settled", text="nobody"),
        "work: settled (none)": WorkFilter(state="settled", group="nobody"),
    }
    event_lists = {
        "events": EventFilter(),
        "events: of a type": EventFilter(type=("run.*",)),
        "events: of a type (none)": EventFilter(type=("run.lost",)),
        "events: of a job": EventFilter(job="job-07"),
        "events: of a group": EventFilter(group="group-07"),
        "events: of a manifest": EventFilter(manifest="manifest-00017"),
        "events: of a run": EventFilter(run=named(f"run {number}")),
        "events: refused (none)": EventFilter(accepted=False),
        "events: of a day": EventFilter(since=now - month / 2, before=now - month / 2 + month / 30),
        "events: of a work": EventFilter(work=named(f"work {number}")),
    }
    audit_lists = {
        "audit": AuditFilter(),
        "audit: of people": AuditFilter(people=True),
        "audit: by an actor": AuditFilter(actor="person-3"),
        "audit: by an actor (none)": AuditFilter(actor="nobody"),
        "audit: of an action": AuditFilter(action=("manifest.changed",)),
        "audit: of a day": AuditFilter(since=now - month / 2, before=now - month / 2 + month / 30),
        "audit: of a target": AuditFilter(target="manifest-00017"),
    }
    letter_lists = {
        "dead letters": LetterFilter(),
        "dead letters: awaiting": LetterFilter(state="awaiting"),
        "dead letters: of a failure": LetterFilter(fingerprint="f00d"),
        "dead letters: of a group": LetterFilter(group="group-00"),
        "dead letters: of a job and a day": LetterFilter(
            job="job-00", created_after=now - month / 30, created_before=now
        ),
        "dead letters: of a manifest (none)": LetterFilter(manifest="nobody"),
    }
    found = {
        **{n: lambda c, f=f: runs.page_of_runs(c, f) for n, f in run_lists.items()},
        "run in full, as it changes": lambda c: runs.read_run_changes(c, named(f"run {number}")),
        "log of a run": lambda c: runs.read_log(c, named(f"run {number}")),
        "log of a run in full, as it grows": lambda c: runs.read_run_log(
            c, named(f"run {number}"), after=1
        ),
        "attempts of a work": lambda c: runs.read_attempts(c, named(f"work {number}")),
        "run in full": lambda c: runs.read_run(c, named(f"run {number}")),
        **{n: lambda c, f=f: manifests.page_of_manifests(c, f) for n, f in manifest_lists.items()},
        "pauses": pauses.page_of_pauses,
        "pauses of all": pauses.list_pauses_of_all,
        "manifests that a pause of all covers": pauses.count_manifests,
        "manifest in full": lambda c: manifests.read_manifest(c, "manifest-00017"),
        "definition in full of a manifest": lambda c: manifests.read_definition(
            c, "manifest-00017"
        ),
        "definition in full (none)": lambda c: manifests.read_definition(c, "manifest-000017"),
        "id of a manifest": lambda c: manifests.find_id(c, "manifest-00017"),
        "id of a manifest in filters": lambda c: manifests.id_of_filter(c, "manifest-00017", None),
        "id in full, by its beginning": lambda c: ids.find_id(
            c, named(f"run {number}").hex[:20], ("work", "run", "dead letter", "canary")
        ),
        "ids by their beginning": lambda c: ids.ids_from(c, "0", ("work", "run"), 8),
        "family of a manifest": lambda c: manifests.read_family(c, named("manifest 17")),
        "labels": manifests.list_labels,
        "applications": applications.page_of_applications,
        "jobs": lambda c: applications.page_of_jobs(c, heard_since=heard),
        "jobs: text": lambda c: applications.page_of_jobs(c, heard_since=heard, text="07"),
        "jobs: failing for a day": lambda c: failing_jobs.page_of_failing_jobs(
            c, since=now - month / 30
        ),
        "jobs: one": lambda c: applications.page_of_jobs(c, heard_since=heard, name="job-07"),
        "jobs: figures of a list": lambda c: applications.read_job_figures(
            c, [f"job-{job:02}" for job in range(20)], among=100
        ),
        "jobs: figures of one": lambda c: applications.read_job_figures(c, ["job-07"], among=1000),
        "jobs: of a group": lambda c: applications.list_jobs_of_group(c, "group-07"),
        "search": lambda c: search.search(c, "manifest 000"),
        "search: an id": lambda c: search.search(c, named(f"run {number}").hex[:12]),
        "dependencies": manifests.list_connected,
        "groups": groups.page_of_groups,
        "groups: one": lambda c: groups.page_of_groups(c, name="group-07"),
        "occupancy": groups.read_occupancy,
        "occupancy: listed": groups.list_occupancy,
        "enqueued": works.page_of_enqueued,
        **{n: lambda c, f=f: works.page_of_works(c, f) for n, f in work_lists.items()},
        "work: counted by reason": works.count_waiting,
        "work: counted by group and reason": works.read_waiting,
        "work in full": lambda c: works.read_work(c, named(f"work {number}")),
        "failures": dead_letters.page_of_failures,
        "failures: of a job": lambda c: dead_letters.page_of_failures(c, job="job-00"),
        "failures: of any state": lambda c: dead_letters.page_of_failures(c, state=None),
        **{n: lambda c, f=f: dead_letters.page_of_letters(c, f) for n, f in letter_lists.items()},
        "canary in full": lambda c: dead_letters.read_canary(c, named("canary")),
        "latest canary of a failure in full": lambda c: dead_letters.latest_canary(c, "f00d"),
        "dead letter in full": lambda c: dead_letters.read_letter(
            c, named(f"letter {named(f'work {number}')}")
        ),
        "id of the manifest of a dead letter": lambda c: dead_letters.manifest_of(
            c, named(f"letter {named(f'work {number}')}")
        ),
        "a look at workers": system.read_heartbeats,
        "workers: alive": lambda c: system.page_of_workers(c, heard_since=heard, alive_only=True),
        "workers: one": lambda c: system.page_of_workers(c, heard_since=heard, name="worker-7"),
        "workers: of a job": lambda c: system.page_of_workers(c, heard_since=heard, job="job-07"),
        "leases of a worker": lambda c: system.list_leases(c, "worker-7"),
        "workers": lambda c: system.page_of_workers(c, heard_since=heard),
        **{n: lambda c, f=f: events.page_of_events(c, f) for n, f in event_lists.items()},
        **{n: lambda c, f=f: audit.page_of_audit(c, f) for n, f in audit_lists.items()},
        "occurrences": lambda c: occurrences.page_of_occurrences(c, named("manifest 17")),
        "days of a month": lambda c: occurrences.read_past(
            c, named("manifest 17"), since=now - month, until=now, zone="Europe/Berlin"
        ),
        "hours of a day": lambda c: occurrences.read_buckets(
            c,
            named("manifest 17"),
            since=now - month / 30,
            until=now,
            width=timedelta(minutes=5),
        ),
        "pulse": events.read_pulse,
        "where news begins": lambda c: events.read_position(c, now=now),
        "news": lambda c: _news(c, now),
        "calendar of a month": lambda c: occurrences.read_span(
            c, named("manifest 17"), since=now - month, until=now, limit=1000
        ),
        "day without its successes": lambda c: occurrences.read_span(
            c, named("manifest 17"), since=now - month / 30, until=now, limit=200, troubled=True
        ),
        "figures of a manifest": lambda c: occurrences.latest_figures(c, named("manifest 17")),
        "throughput of a day": lambda c: system.read_throughput(
            c, until=now, width=timedelta(minutes=30)
        ),
        "throughput of three days": lambda c: system.read_throughput(
            c, until=now, width=timedelta(hours=1), slots=72
        ),
        "overview": lambda c: system.read_overview(c, now=now, heard_since=heard),
        "health": lambda c: system.read_health(c, now=now),
        "system": lambda c: system.read_system(c, now=now),
    }
    return {n: _unless_missing(ask) if "in full" in n else ask for n, ask in found.items()}


def _unless_missing(ask: Reading) -> Reading:
    """Read a single thing, or `None` if it is not found."""

    async def read(connection: Connection) -> Any:
        try:
            return await ask(connection)
        except NotFound:
            return None

    return read


async def _news(connection: Connection, now: datetime) -> Any:
    numbers = await events.read_position(connection, now=now)
    heard = Numbers(max(0, numbers.settled - 100))
    new = await events.new_numbers(connection, heard, now=now, elapsed=0.0)
    return await events.read_events(connection, new, EventFilter(), now=now)
