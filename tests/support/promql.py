"""A parser of the part of PromQL that our alert rules use: it refuses whatever else is written."""

import re

from msgspec import Struct

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<word>[A-Za-z_:][A-Za-z0-9_:]*)"
    r'|(?P<text>"(?:[^"\\\\]|\\\\.)*")|(?P<range>\[\d+[smhdw]\])'
    r"|(?P<sign>=~|!~|!=|==|>=|<=|[-+*/(){},=<>]))"
)
_AGGREGATIONS = {"sum", "max", "min", "avg", "count"}
_OF_RANGES = {"rate", "increase"}
_OF_VECTORS = {"absent"}


class Selected(Struct, frozen=True, kw_only=True):
    """A selector: the metric or a pattern of its name, its matchers, and who aggregates it."""

    metric: str = ""
    pattern: str = ""
    labels: tuple[str, ...] = ()
    by: tuple[str, ...] = ()


class NotPromQL(ValueError):
    """The text is no expression that we know."""


class Expression:
    """One expression; `selected` are the selectors in it."""

    def __init__(self, text: str) -> None:
        self._tokens = _split(text)
        self.selected: list[Selected] = []
        self._by: tuple[str, ...] = ()
        self._binary(0)
        if self._tokens:
            raise NotPromQL(f"unexpected {self._tokens[0][1]!r} in {text!r}")

    _LEVELS = (
        ("or",),
        ("and", "unless"),
        (">", "<", ">=", "<=", "==", "!="),
        ("+", "-"),
        ("*", "/"),
    )

    def _binary(self, level: int) -> None:
        if level == len(self._LEVELS):
            self._operand()
            return
        self._binary(level + 1)
        while self._peek() in self._LEVELS[level]:
            self._take()
            if self._peek() in ("on", "ignoring"):
                self._take()
                self._names()
            self._binary(level + 1)

    def _operand(self) -> None:
        kind, value = self._tokens[0] if self._tokens else ("end", "")
        if kind == "number":
            self._take()
        elif value == "(":
            self._take()
            self._binary(0)
            self._expect(")")
        elif value in _AGGREGATIONS:
            self._take()
            self._aggregation()
        elif value in (*_OF_RANGES, *_OF_VECTORS):
            self._take()
            self._expect("(")
            self._selector(ranged=value in _OF_RANGES)
            self._expect(")")
        elif value == "histogram_quantile":
            self._take()
            self._expect("(")
            self._binary(0)
            self._expect(",")
            self._binary(0)
            self._expect(")")
        else:
            self._selector(ranged=False)

    def _aggregation(self) -> None:
        around = self._by
        self._by = ()
        if self._peek() == "by":
            self._take()
            self._by = self._names()
        self._expect("(")
        self._binary(0)
        self._expect(")")
        self._by = around

    def _selector(self, *, ranged: bool) -> None:
        kind, value = self._tokens[0] if self._tokens else ("end", "")
        metric = ""
        if kind == "word":
            metric = self._take()
        elif value != "{":
            raise NotPromQL(f"a metric was expected, not {value!r}")
        pattern, labels = self._matchers() if self._peek() == "{" else ("", [])
        if (bool(self._tokens) and self._tokens[0][0] == "range") != ranged:
            raise NotPromQL(
                f"{metric or pattern}: a range is for rate and increase, and only there"
            )
        if ranged and pattern:
            raise NotPromQL(f"{pattern}: rate and increase drop the name, so series would collide")
        if ranged:
            self._take()
        self.selected.append(
            Selected(metric=metric, pattern=pattern, labels=tuple(labels), by=self._by)
        )

    def _matchers(self) -> tuple[str, list[str]]:
        """The pattern of the name, and the labels that are matched."""
        self._expect("{")
        pattern, labels = "", []
        while self._peek() != "}":
            name, sign, text = self._take("word"), self._take("sign"), self._take("text")
            if sign not in ("=", "!=", "=~", "!~"):
                raise NotPromQL(f"{sign!r} matches nothing")
            if name == "__name__":
                pattern = text[1:-1]
            else:
                labels.append(name)
            if self._peek() != "}":
                self._expect(",")
        self._expect("}")
        return pattern, labels

    def _names(self) -> tuple[str, ...]:
        self._expect("(")
        found = []
        while self._peek() != ")":
            found.append(self._take("word"))
            if self._peek() != ")":
                self._expect(",")
        self._expect(")")
        return tuple(found)

    def _peek(self) -> str:
        return self._tokens[0][1] if self._tokens else ""

    def _take(self, kind: str | None = None) -> str:
        if not self._tokens or kind not in (None, self._tokens[0][0]):
            raise NotPromQL(f"{kind or 'more'} was expected, not {self._peek()!r}")
        return self._tokens.pop(0)[1]

    def _expect(self, value: str) -> None:
        if self._peek() != value:
            raise NotPromQL(f"{value!r} was expected, not {self._peek()!r}")
        self._take()


def _split(text: str) -> list[tuple[str, str]]:
    tokens, at, end = [], 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise NotPromQL(f"{text[at:]!r} cannot be read")
        tokens.append((str(match.lastgroup), match[str(match.lastgroup)]))
        at = match.end()
    return tokens
