"""When a notification that a receiver did not take is sent again, and when it is given up."""

from datetime import datetime, timedelta

from msgspec import Struct

# A receiver that is down for long is tried again at least this often.
LONGEST_PAUSE = 3600.0


class SendAgain(Struct, frozen=True):
    """The notification is sent again at this time."""

    at: datetime


class GiveUp(Struct, frozen=True):
    """The notification is not sent again: its horizon lies before the next attempt."""


def after_failure(
    *,
    attempts: int,
    created_at: datetime,
    now: datetime,
    first_pause: float,
    horizon: float,
    spread: float,
) -> SendAgain | GiveUp:
    """Decide about a notification whose latest of some attempts has failed; times in seconds.

    Pauses double from the first one to an hour. `spread`, from 0 to 1, lengthens a pause by up to
    a tenth of it, so that many do not come back together.
    """
    # Beyond sixty doublings the longest pause holds anyhow, and no float overflows.
    pause = min(first_pause * 2.0 ** min(attempts - 1, 60), LONGEST_PAUSE) * (1 + spread / 10)
    at = now + timedelta(seconds=pause)
    return SendAgain(at) if at <= created_at + timedelta(seconds=horizon) else GiveUp()
