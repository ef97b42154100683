"""Mistakes in a definition are answered with the right word, at once or with the other problems."""

import re

import pytest
from headway import App, Item, allow, catch_up, daily, every, manual, retry, weekly
from headway.define.keywords import check_keywords
from support.definitions import problems

APP = App("shop")


@pytest.mark.parametrize(
    ("call", "given", "message"),
    [
        (every, {"second": 1}, "every() takes no keyword 'second'; did you mean 'seconds'?"),
        (daily, {"at": "9:00", "tzz": 1}, "daily() takes no keyword 'tzz'; did you mean 'tz'?"),
        (weekly, {"day": "mon"}, "weekly() takes no keyword 'day'; did you mean 'days'?"),
        (manual, {"tz": "UTC"}, "manual() takes no keyword 'tz': use enabled, name, overlap"),
        (retry, {"attempt": 3}, "retry() takes no keyword 'attempt'; did you mean 'attempts'?"),
        (catch_up, {"max": 3}, "catch_up() takes no keyword 'max': use most, threshold"),
        (allow, {"mosts": 3}, "allow() takes no keyword 'mosts'; did you mean 'most'?"),
        (App, {"generations": 1}, "App() takes no keyword 'generations'; did you mean"),
        (App, {"name": "x", "defaults": {"timout": 1}}, "App(defaults=...) takes no keyword"),
        (APP.job, {"time_out": 1}, "job() takes no keyword 'time_out'; did you mean 'timeout'?"),
        (APP.job, {"maxactive": 1}, "takes no keyword 'maxactive'; did you mean 'max_active'?"),
        (APP.group, {"rates": 1}, "group() takes no keyword 'rates'; did you mean 'rate'?"),
        (APP.schedule, {"jobs": "x"}, "schedule() takes no keyword 'jobs'; did you mean 'job'?"),
        (APP.schedule_many, {"item": []}, "schedule_many() takes no keyword 'item'; did you"),
        (APP.manifest("x").then, {"jb": 1}, "then_include() takes no keyword 'jb'; did you mean"),
        (APP.manifest("x").include_many, {"dormants": 1}, "takes no keyword 'dormants'; did you"),
    ],
)
def test_an_unknown_keyword_names_the_nearest(call, given, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        call(**given)


def test_known_keywords_pass():
    @check_keywords
    def known(first, *rest, second=2): ...

    known(1, 2, second=3)
    with pytest.raises(TypeError, match="use first, second"):
        known(third=3)


def nothing(): ...
async def too_many(ctx, customer, day): ...
def by_keyword(ctx, *, customer): ...
def swapped(customer, ctx): ...
def whatever(*everything): ...
def of_a_class(self, ctx, customer): ...
def other_words(context, *, first, second): ...


@pytest.mark.parametrize(
    ("function", "written"),
    [
        (nothing, "def nothing(ctx) or def nothing(ctx, order)"),
        (
            too_many,
            "async def too_many(ctx) or async def too_many(ctx, order), "
            "with customer and day as fields of the order",
        ),
        (by_keyword, "def by_keyword(ctx) or def by_keyword(ctx, customer)"),
        (swapped, "def swapped(ctx) or def swapped(ctx, customer)"),
        (whatever, "def whatever(ctx) or def whatever(ctx, order)"),
        (of_a_class, "def of_a_class(ctx) or def of_a_class(ctx, customer)"),
        (
            other_words,
            "def other_words(ctx) or def other_words(ctx, order), "
            "with first and second as fields of the order",
        ),
        (lambda: None, "def job(ctx) or def job(ctx, order)"),
    ],
)
def test_a_wrong_signature_shows_the_right_one(function, written):
    app = App("shop")
    app.job("job")(function)
    assert problems(app) == [
        f"job 'job': {function.__qualname__} must take a context and at most one input: "
        f"write {written}"
    ]


def test_a_body_that_yields_is_refused():
    app = App("shop")

    @app.job("plain")
    def plain(ctx):
        yield 1

    @app.job("coroutine")
    async def coroutine(ctx):
        yield 1

    assert [problem.rpartition(" yields")[2] for problem in problems(app)] == [
        ", so it would never run: return a value"
    ] * 2


def test_a_decorator_without_its_arguments_is_refused_at_once():
    app = App("shop")
    with pytest.raises(TypeError, match=re.escape("write @app.job('name')")):
        app.job(nothing)
    for bare in (daily, every, manual, retry):
        called = bare.__name__
        with pytest.raises(TypeError, match=re.escape(f"parentheses: write @{called}(...)")):
            app.job("job")(bare(nothing))


def test_an_undeclared_job_names_the_nearest():
    app = App("shop")
    app.job("send-mail")(lambda ctx: None)
    app.schedule_many("mails", job="sendmail", items=[Item("a")], when=daily("09:00"))
    assert problems(app) == [
        "manifest 'mails-a' names the job 'sendmail', which is not declared: put @app.job(...) "
        "over its function, or name another job; did you mean 'send-mail'?"
    ]
