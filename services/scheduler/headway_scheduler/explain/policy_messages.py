"""What policies made of due times, in sentences. Pure.

Policies change. A sentence about the past names the one that was in force then, if that is known,
and says so if it is another one by now.
"""

from headway_scheduler.explain.past_terms import Terms

_SHORTER = "Make the job shorter than its cadence."
_LET_WAIT = "Use overlap='queue_one' to let one wait, or make the job shorter than its cadence."


def missed(then: Terms, now: Terms, *, made_good: bool) -> str:
    """Due times that nobody was there to decide; `made_good` if a later one fired for them."""
    nobody = f"no scheduler decided it in time, and {_made_good(then.misfire, made_good)}."
    was_it_down = "" if then.misfire == "catch_up" else "Was the scheduler down then?"
    return _joined(nobody, was_it_down, _by_now("misfire", then.misfire, now.misfire))


def paused(then: Terms, now: Terms, what_for: str, *, made_good: bool) -> str:
    """Due times that came in a pause; `made_good` if a later one fired for them."""
    why = f" ({what_for})" if what_for else ""
    said = f"it was paused then{why}, and {_made_good(then.misfire, made_good)}."
    return _joined(said, _by_now("misfire", then.misfire, now.misfire))


def no_room(then: Terms, now: Terms) -> str:
    """Due times that came while work was under way."""
    policy = f"its overlap policy was {then.overlap!r}"
    if then.overlap is None:
        policy = "its overlap policy at that time left no room"
    remedy = _LET_WAIT if then.overlap == now.overlap else _SHORTER
    by_now = _by_now("overlap", then.overlap, now.overlap)
    return _joined(f"earlier work of it was still under way, and {policy}.", by_now or remedy)


def one_waits(then: Terms, now: Terms) -> str:
    """Due times that came while one more was waiting for work under way."""
    policy = "" if then.overlap is None else f" (overlap policy {then.overlap!r})"
    by_now = _by_now("overlap", then.overlap, now.overlap)
    waited = f"work of it was under way and one more was waiting already{policy}."
    return _joined(waited, by_now or _SHORTER)


def _made_good(misfire: str | None, made_good: bool) -> str:
    if misfire in ("fire_once", "catch_up") and not made_good:
        # Its timing was changed before that, or what was to fire could not.
        return f"nothing made up for it (misfire policy {misfire!r})"
    match misfire:
        case None:
            return "its misfire policy at that time did not make up for it"
        case "skip":
            return "its misfire policy was 'skip'"
        case "catch_up":
            return "its misfire policy, 'catch_up', made up for the latest ones only"
    return "one later fire made up for all that was missed (misfire policy 'fire_once')"


def _by_now(kind: str, then: str | None, now: str | None) -> str:
    return "" if then in (None, now) else f"Its {kind} policy is {now!r} now."


def _joined(*said: str) -> str:
    return " ".join(filter(None, said))
