"""Alert rules: well formed, and about metrics and labels that the code exports."""

import re
from pathlib import Path

import pytest
import yaml
from support.promql import Expression, NotPromQL

from generators import alert_rules
from generators.metrics_page import every_measure

ROOT = Path(__file__).parents[2]
MEASURES = {measure.name: measure for measures in every_measure().values() for measure in measures}
RULES = [
    rule
    for group in yaml.safe_load((ROOT / alert_rules.RULES).read_text())["groups"]
    for rule in group["rules"]
]


def exported(metric: str) -> set[str]:
    """Return the labels of an exported metric; those of a histogram depend on its series."""
    if metric in MEASURES and MEASURES[metric].kind != "histogram":
        return set(MEASURES[metric].labels)
    base, _, series = metric.rpartition("_")
    assert base in MEASURES, f"no service exports {metric}"
    assert MEASURES[base].kind == "histogram"
    assert series in ("bucket", "sum", "count")
    return {*MEASURES[base].labels, *(("le",) if series == "bucket" else ())}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_rule_is_about_metrics_and_labels_that_exist(rule):
    selected = Expression(rule["expr"]).selected
    assert selected
    for selector in selected:
        names = (
            [selector.metric]
            if selector.metric
            else [name for name in MEASURES if re.fullmatch(selector.pattern, name)]
        )
        assert names, selector
        for name in names:
            assert {*selector.labels, *selector.by} <= {*exported(name), "__name__"}, selector


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_rule_is_formed_as_prometheus_wants_it(rule):
    assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", rule["alert"])
    assert re.fullmatch(r"\d+[smhd]", rule["for"])
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"]["summary"].endswith(".")
    assert "{{" not in rule["annotations"]["summary"]


def test_names_are_unique_and_both_files_hold_the_same_rules():
    assert len({rule["alert"] for rule in RULES}) == len(RULES) >= 10
    resource = yaml.safe_load((ROOT / alert_rules.PROMETHEUS_RULE).read_text())
    assert (resource["apiVersion"], resource["kind"]) == (
        "monitoring.coreos.com/v1",
        "PrometheusRule",
    )
    [group] = resource["spec"]["groups"]
    assert group["rules"] == RULES
    component = yaml.safe_load(
        (ROOT / "deploy" / "k8s" / "monitoring" / "kustomization.yaml").read_text()
    )
    assert "prometheus-rule.yaml" in component["resources"]


@pytest.mark.parametrize(
    "wrong",
    [
        "max(a > 1",
        "rate(a) > 1",
        "a[5m] > 1",
        "a{b=c}",
        "max by (a (b)",
        "a > ",
        "a b",
        "a ! 1",
        'rate({__name__=~"a|b"}[5m])',
    ],
)
def test_the_check_of_expressions_rejects_what_prometheus_rejects(wrong):
    with pytest.raises(NotPromQL):
        Expression(wrong)
