"""The format of a file of definitions: the source of its checks and of its JSON Schema.

Words such as weekdays are plain text here, because the functions of Python report more about a
wrong word than a schema could. Only the JSON Schema lists the words.
"""

from typing import Annotated, Any, Literal

from headway_contract.fields import MANIFEST_ID_PATTERN, NAME_PATTERN, Count, MaxActive, Priority
from headway_contract.work import MOST_RUNS_OF_A_LEASE, Grace, Timeout
from headway_decisions.timing import cron
from msgspec import Meta, Struct

from headway.define.calendar import Days, Months, Weeks
from headway.define.definitions import Jitter, Labels

_TIME = r"([01]?[0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?"
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
# From 1 to a million, and any number above 0.
_COUNT = r"0*([1-9][0-9]{0,5}|1000000)"
_ABOVE_ZERO = r"([0-9]*[1-9][0-9]*(\.[0-9]+)?|[0-9]+\.[0-9]*[1-9][0-9]*)"


def _text(pattern: str, example: str) -> Meta:
    return Meta(extra_json_schema={"pattern": pattern, "examples": [example]})


def _word(kind: type[Days] | type[Months] | type[Weeks]) -> Meta:
    """Return a list of words for editors, in lower or upper case."""
    words = [name.lower() for name in kind.__members__]
    spelled = "|".join("".join(f"[{letter.upper()}{letter}]" for letter in word) for word in words)
    return Meta(extra_json_schema={"anyOf": [{"enum": words}, {"pattern": f"^({spelled})$"}]})


# Only for editors: the checks report more about an empty value.
_FILLED = Meta(extra_json_schema={"minItems": 1})
_SAID = Meta(extra_json_schema={"minLength": 1})

Name = Annotated[str, _text(NAME_PATTERN, "billing")]
ManifestId = Annotated[str, _text(MANIFEST_ID_PATTERN, "nightly-cleanup")]
Time = Annotated[str, _text(f"^{_TIME}$", "03:15")]
Window = Annotated[str, _text(f"^{_TIME} ?- ?{_TIME}$", "09:00-17:00")]
Day = Annotated[str, _text(f"^{_DATE}$", "2027-12-24")]
Moment = Annotated[str, _text(f"^{_DATE}( {_TIME})?$", "2027-06-01 09:00")]
Instant = Annotated[str, _text(f"^{_DATE} {_TIME}$", "2027-06-01 09:00")]
_NICKNAMES = "|".join(cron.NICKNAMES)
Expression = Annotated[str, _text(rf"^\s*(\S+(\s+\S+){{4,5}}|{_NICKNAMES})\s*$", "15 3 * * *")]

DayWord = Annotated[str, _word(Days)]
MonthWord = Annotated[str, _word(Months)]
WeekWord = Annotated[str, _word(Weeks)]
Month = MonthWord | Annotated[int, Meta(ge=1, le=12)]
MonthDay = Annotated[int, Meta(ge=1, le=31)] | Literal["last"]
DayWords = DayWord | Annotated[list[DayWord], _FILLED]
WeekWords = WeekWord | Annotated[list[WeekWord], _FILLED]
Seconds = Annotated[float, Meta(ge=0)]
Kind = Annotated[str, Meta(min_length=1, max_length=255)]
Kinds = Kind | list[Kind]
_RATE = rf"^\s*{_COUNT}\s*(/|per)\s*({_ABOVE_ZERO}\s*)?(second|minute|hour|day)s?\s*$"
RateText = Annotated[str, _text(_RATE, "100/minute")]
KeyTemplate = Annotated[
    str, Meta(extra_json_schema={"minLength": 1, "examples": ["customer:{input.id}"]})
]
StartWithin = Annotated[float, Meta(extra_json_schema={"exclusiveMinimum": 0})]
Zone = Annotated[
    str,
    Meta(description="A zone such as Europe/Berlin. The default is that of `defaults`, or UTC."),
    _SAID,
]
Yes = Annotated[bool, Meta(extra_json_schema={"const": True})]
AppName = Annotated[
    str, _text(NAME_PATTERN, "billing"), Meta(extra_json_schema={"not": {"const": "api"}})
]
ItemId = Annotated[str, _text("^[A-Za-z0-9_-]*$", "ada")] | int


class Record(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A mapping whose keys are known."""


class Bounds(Record):
    """Filters, and the zone of the wall clock."""

    weekdays: DayWords | None = None
    months: Month | Annotated[list[Month], _FILLED] | None = None
    weeks: WeekWords | None = None
    between: Window | None = None
    start: Moment | None = None
    end: Moment | None = None
    tz: Zone | None = None


class DayBounds(Bounds):
    """Adds `days` as a synonym of `weekdays`."""

    days: DayWords | None = None


class CronRecord(DayBounds, kw_only=True):
    """Fires when a cron expression matches: five fields, six with seconds first, or @daily."""

    expression: Expression


class EveryRecord(Bounds):
    """Fires on a grid that starts at each midnight, or every `days` days at a time.

    If `days` is not a number, it is a synonym of `weekdays`.
    """

    seconds: Seconds = 0
    minutes: Seconds = 0
    hours: Seconds = 0
    days: Annotated[int, Meta(ge=1)] | DayWords | None = None
    at: Time | None = None


class SpacedRecord(Bounds):
    """Fires a fixed time after its last work ended; `days` is a number, or like `weekdays`."""

    seconds: Seconds = 0
    minutes: Seconds = 0
    hours: Seconds = 0
    days: Seconds | DayWords | None = None


class DailyRecord(DayBounds, kw_only=True):
    """Fires once a day at a time."""

    at: Time


class WeeklyRecord(Bounds, kw_only=True):
    """Fires on weekdays at a time, in every nth week counted from the start date."""

    days: DayWords
    at: Time
    every: Annotated[int, Meta(ge=1, le=520)] = 1


class MonthlyRecord(Bounds, kw_only=True):
    """Fires on days of the month; skips a day that a month does not have."""

    days: MonthDay | Annotated[list[MonthDay], _FILLED]
    at: Time


class MonthlyDowRecord(Bounds, kw_only=True):
    """Fires on the first, second, third, fourth or last of a weekday in each month."""

    weeks: WeekWords
    days: DayWords
    at: Time


class OnceRecord(DayBounds, kw_only=True):
    """Fires once."""

    at: Instant


class RetryRecord(Record):
    """The number of attempts, and the delays between them in seconds.

    `retry_on` lists the only kinds of failure that are retried, `abort_on` kinds that are not:
    names of exceptions, or kinds of Headway such as timed_out. Defaults apply to missing keys.
    """

    attempts: Count | None = None
    interval: Seconds | None = None
    backoff: Annotated[float, Meta(ge=1)] | None = None
    max_interval: Seconds | None = None
    jitter: Annotated[float, Meta(ge=0, le=1)] | None = None
    retry_on: Kinds = []
    abort_on: Kinds = []


class MisfireRecord(Record, kw_only=True):
    """The policy for missed fire times; `limit` is the number of fires of `catch_up`."""

    policy: Literal["fire_once", "skip", "catch_up"]
    threshold: Seconds | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 1


class AllowRecord(Record, kw_only=True):
    """The number of concurrent pieces of work of a manifest."""

    allow: Annotated[int, Meta(ge=1, le=1000)]


class ExcludeRecord(Record):
    """Excluded weekdays, dates, a range of dates, or a window of the day."""

    days: DayWords | None = None
    dates: Day | Annotated[list[Day], _FILLED] | None = None
    range: Annotated[list[Day], Meta(min_length=2, max_length=2)] | None = None
    times: Window | None = None


class GroupRecord(Record):
    """Settings of a group. Operators decide missing ones."""

    max_active: MaxActive | None = None
    priority: Priority | None = None
    enabled: bool | None = None
    rate: RateText | None = None


class DefaultsRecord(Record):
    """Default terms of all jobs and manifests of the file."""

    priority: Priority | None = None
    timeout: Timeout | None = None
    cancel_grace: Grace | None = None
    retry: RetryRecord | None = None
    misfire: Literal["fire_once", "skip"] | MisfireRecord | None = None
    overlap: Literal["skip", "queue_one", "cancel_running"] | AllowRecord | None = None
    jitter: Jitter | None = None
    tz: Zone | None = None


class JobRecord(Record):
    """A job whose body is in a worker. Without an `input_schema` it accepts any input."""

    title: str = ""
    category: str = ""
    description: str = ""
    group: Name | None = None
    timeout: Timeout | None = None
    cancel_grace: Grace | None = None
    priority: Priority | None = None
    on_lost_contact: Literal["stop", "continue"] = "stop"
    on_dead_letter: Literal["block", "go_on"] = "block"
    retry: RetryRecord | None = None
    input_schema: dict[str, Any] | None = None
    takes_input: bool = True
    max_active: MaxActive | None = None
    rate: RateText | None = None
    counts_globally: bool = True
    batch: Annotated[int, Meta(ge=1, le=MOST_RUNS_OF_A_LEASE)] | None = None
    concurrency_key: KeyTemplate | None = None
    concurrency_limit: Count = 1
    start_within: StartWithin | None = None
    labels: Labels = {}


class TimedRecord(DayBounds, kw_only=True):
    """A cadence with its filters, and terms: for manifests, batches and their items."""

    cron: Expression | CronRecord | None = None
    every: EveryRecord | None = None
    spaced: SpacedRecord | None = None
    daily: Time | DailyRecord | None = None
    weekly: WeeklyRecord | None = None
    monthly: MonthlyRecord | None = None
    monthly_dow: MonthlyDowRecord | None = None
    once: Instant | OnceRecord | None = None
    manual: Yes | None = None
    depends_on: ManifestId | None = None
    group: Name | None = None
    priority: Priority | None = None
    timeout: Timeout | None = None
    cancel_grace: Grace | None = None
    on_lost_contact: Literal["stop", "continue"] | None = None
    on_dead_letter: Literal["block", "go_on"] | None = None
    retry: RetryRecord | None = None
    misfire: Literal["fire_once", "skip"] | MisfireRecord | None = None
    overlap: Literal["skip", "queue_one", "cancel_running"] | AllowRecord | None = None
    exclude: ExcludeRecord | list[ExcludeRecord] | None = None
    jitter: Jitter | None = None
    enabled: bool | None = None
    concurrency_key: KeyTemplate | None = None
    concurrency_limit: Count | None = None
    start_within: StartWithin | None = None
    labels: Labels | None = None


class ScheduledRecord(TimedRecord, kw_only=True):
    """The common keys of manifests and batches. Each has one cadence or a parent."""

    job: Name
    dormant: bool = False


class ManifestRecord(ScheduledRecord):
    """A job, its input and its timing."""

    input: Any = None


class ItemRecord(TimedRecord, kw_only=True):
    """One manifest of a batch. Its keys override those of the batch.

    A cadence replaces that of the batch with all its filters.
    """

    id: ItemId
    input: Any = None


class BatchRecord(ScheduledRecord, kw_only=True):
    """A manifest `<batch>-<item>` for each item, in a group of the batch's name.

    Items are a mapping from id to input, or a list of items, which may have their own terms.
    With `prune`, manifests of removed items are deleted.
    """

    items: dict[str, Any] | list[ItemRecord]
    prune: bool = True


class FileRecord(Record, kw_only=True):
    """The definitions of an application."""

    app: AppName
    generation: Annotated[int, Meta(ge=0)] = 0
    defaults: DefaultsRecord | None = None
    groups: dict[Name, GroupRecord | None] = {}
    jobs: dict[Name, JobRecord | None] = {}
    manifests: dict[ManifestId, ManifestRecord] = {}
    batches: dict[Name, BatchRecord] = {}


CADENCES = (
    "cron", "every", "spaced", "daily", "weekly", "monthly", "monthly_dow", "once", "manual",
)  # fmt: skip
