"""Defaults of definitions: the most specific value wins."""

import pytest
from headway import App, InvalidDefinitions, daily, every, load_yaml, manual, retry
from headway.define.defaults import BUILT_IN, DefinitionSettings
from headway.define.options import skip_missed
from headway.yaml_file import read_app
from headway_cli.serve.settings import read_defaults
from headway_contract.work import RetryPolicy
from headway_decisions.firing.manifest_state import Misfire, Overlap
from headway_service_kit.settings import InvalidSettings

GIVEN = DefinitionSettings(
    priority=3,
    retry_attempts=7,
    retry_interval_seconds=5,
    timeout_seconds=50,
    cancel_grace_seconds=5,
    misfire_policy="skip",
    misfire_threshold_seconds=300,
    overlap_policy="queue_one",
    jitter_seconds=9,
).defaults()


def manifest_of(app, defaults=BUILT_IN):
    [manifest] = app.definitions(defaults).manifests
    return manifest


def app_with(*, defaults=None, job=None, when=None, **terms):
    app = App("a", defaults=defaults)
    app.job("j", **(job or {}))(lambda ctx: None)
    app.schedule("m", job="j", when=when or every(hours=1), **terms)
    return app


def test_the_settings_show_the_built_in_defaults():
    assert DefinitionSettings().defaults() == BUILT_IN


def test_the_environment_applies_to_unstated_fields():
    found = manifest_of(app_with(), GIVEN)
    assert (found.priority, found.timeout_seconds, found.cancel_grace_seconds) == (3, 50, 5)
    assert found.retry == RetryPolicy(attempts=7, interval_seconds=5)
    assert found.misfire == Misfire(policy="skip", threshold_seconds=300)
    assert (found.overlap, found.jitter_seconds) == (Overlap(policy="queue_one"), 9)
    [job] = app_with().definitions(GIVEN).jobs
    assert (job.terms.timeout_seconds, job.terms.retry.attempts) == (50, 7)


def test_the_app_wins_over_the_environment_the_job_over_the_app_and_the_manifest_over_all():
    stated = {"timeout": 40, "priority": 4}
    assert manifest_of(app_with(defaults=stated), GIVEN).timeout_seconds == 40
    of_job = app_with(defaults=stated, job={"timeout": 30})
    assert manifest_of(of_job, GIVEN).timeout_seconds == 30
    of_manifest = app_with(defaults=stated, job={"timeout": 30}, timeout=20, priority=0)
    found = manifest_of(of_manifest, GIVEN)
    # Zero is a value too.
    assert (found.timeout_seconds, found.priority) == (20, 0)


def test_a_retry_policy_inherits_unstated_fields():
    app = App("a", defaults={"retry": retry(interval=1)})

    @app.job("j")
    @every(hours=1)
    @retry(attempts=2)
    def body(ctx): ...

    policy = manifest_of(app, GIVEN).retry
    assert (policy.attempts, policy.interval_seconds, policy.backoff) == (2, 1, 2.0)


def test_a_misfire_policy_by_name_has_the_threshold_of_the_defaults():
    by_name = manifest_of(app_with(when=every(hours=1, misfire="fire_once")), GIVEN).misfire
    assert by_name == Misfire(policy="fire_once", threshold_seconds=300)
    by_value = manifest_of(app_with(misfire=skip_missed(threshold=1)), GIVEN).misfire
    assert by_value == Misfire(policy="skip", threshold_seconds=1)


YAML = """
app: a
defaults:
  timeout: 40
  retry: {attempts: 2}
  misfire: {policy: skip}
  overlap: {allow: 3}
jobs:
  j: {}
manifests:
  m: {job: j, daily: "03:15"}
  n: {job: j, daily: "03:15", timeout: 20, misfire: fire_once}
"""


def test_a_file_has_defaults_as_well():
    m, n = load_yaml(YAML).manifests
    assert (m.timeout_seconds, n.timeout_seconds, m.retry.attempts) == (40, 20, 2)
    assert (m.misfire, n.misfire) == (Misfire(policy="skip"), Misfire())
    assert m.overlap == Overlap(policy="allow", limit=3)
    m, n = read_app(YAML).definitions(GIVEN).manifests
    assert (m.timeout_seconds, m.retry.attempts, m.retry.interval_seconds) == (40, 2, 5)
    assert (m.misfire.threshold_seconds, n.misfire.threshold_seconds) == (300, 300)


def test_invalid_defaults_are_reported_with_all_other_problems():
    with pytest.raises(TypeError, match=r"takes no keyword 'time_out'.*did you mean 'timeout'"):
        App("a", defaults={"time_out": 3})
    app = app_with(defaults={"retry": 3, "misfire": "never"})
    with pytest.raises(InvalidDefinitions) as caught:
        app.definitions()
    assert "defaults of the app: retry=3 is not a retry policy" in str(caught.value)
    assert "defaults of the app: 'never' is not a misfire policy" in str(caught.value)
    with pytest.raises(InvalidDefinitions, match="defaults of the app: timeout -1 is not valid"):
        app_with(defaults={"timeout": -1}).definitions()
    with pytest.raises(InvalidDefinitions, match="line 2: the file: defaults has the unknown key"):
        load_yaml("app: a\ndefaults: {time_out: 3}\n")


def zones(definitions):
    return [manifest.timing.zone for manifest in definitions.manifests]


def test_the_zone_of_a_cadence_is_its_own_or_the_apps_or_that_of_the_environment():
    in_tokyo = DefinitionSettings(tz="Asia/Tokyo").defaults()
    app = App("a", tz="Europe/Berlin")
    app.job("j")(lambda ctx: None)
    app.schedule("plain", job="j", when=daily("03:15"))
    app.schedule("own", job="j", when=daily("03:15", tz="UTC"))
    app.schedule("asked", job="j", when=manual())
    assert zones(app.definitions(in_tokyo)) == ["Europe/Berlin", "UTC", "UTC"]
    assert zones(app_with(defaults={"tz": "Europe/Paris"}).definitions(in_tokyo)) == [
        "Europe/Paris"
    ]
    assert zones(app_with().definitions(in_tokyo)) == ["Asia/Tokyo"]
    assert zones(app_with().definitions()) == ["UTC"]
    # A cadence without a zone equals a cadence with the app's zone.
    assert manifest_of(app_with(defaults={"tz": "UTC"})).fingerprint() == (
        manifest_of(app_with(when=every(hours=1, tz="UTC"))).fingerprint()
    )
    file = "app: a\ndefaults: {tz: Europe/Berlin}\njobs: {j: }\nmanifests:\n"
    file += "  m: {job: j, daily: '03:15'}\n  n: {job: j, daily: {at: '03:15', tz: UTC}}\n"
    assert zones(read_app(file).definitions(in_tokyo)) == ["Europe/Berlin", "UTC"]


def test_an_unknown_default_zone_is_reported_once():
    with pytest.raises(InvalidDefinitions) as caught:
        app_with(defaults={"tz": "Mars/Olympus"}).definitions()
    assert caught.value.problems == [
        "defaults of the app: time zone 'Mars/Olympus' is not known: use a name such as "
        "'Europe/Berlin'"
    ]
    with pytest.raises(InvalidDefinitions, match="time zone 'Mars'"):
        load_yaml("app: a\ndefaults: {tz: Mars}\n")
    with pytest.raises(TypeError, match="set one zone"):
        App("a", tz="UTC", defaults={"tz": "Europe/Berlin"})
    with pytest.raises(InvalidSettings, match="HEADWAY_TZ: time zone 'Mars' is not known"):
        read_defaults({"HEADWAY_TZ": "Mars"})
    assert read_defaults({"HEADWAY_TZ": "Europe/Berlin"}).tz == "Europe/Berlin"


def test_the_environment_may_let_missed_fires_be_caught_up_with():
    given = {"HEADWAY_MISFIRE_POLICY": "catch_up:5", "HEADWAY_MISFIRE_THRESHOLD_SECONDS": "9"}
    found = manifest_of(app_with(), read_defaults(given)).misfire
    assert found == Misfire(policy="catch_up", limit=5, threshold_seconds=9)
    assert read_defaults({"HEADWAY_MISFIRE_POLICY": "skip"}).misfire.policy == "skip"
    for wrong in ("catch_up", "catch_up:0", "catch_up:1001", "never"):
        with pytest.raises(InvalidSettings, match="write fire_once, skip, or catch_up:5"):
            read_defaults({"HEADWAY_MISFIRE_POLICY": wrong})
