"""Times at which workloads may start: the annotations of an AdmissionCheck `sluicegate.dev/window`.

metadata:
  annotations:
    sluicegate.dev/time-zone: Europe/Berlin
    sluicegate.dev/windows: |
      0 22 * * mon-thu for 8h
      0 22 * * fri for 58h

Each line is a cron expression (minute, hour, day of month, month, day of week) that says when a window
opens, and how long it stays open. It is about wall clocks: where a night has an hour more or less, so
has the window. Pure.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from shared.contracts.controllers import WINDOW

CONTROLLER: Final = WINDOW
"""`spec.controllerName` of the AdmissionChecks that are answered by the clock."""

WINDOWS: Final = "sluicegate.dev/windows"
TIME_ZONE: Final = "sluicegate.dev/time-zone"

LINES_MAX: Final = 50
OPEN_MAX: Final = timedelta(days=31)
LOOK_AHEAD_DAYS: Final = 5 * 366
"""A window that does not open within this time never does. The 29th of February comes sooner."""

_MONTHS: Final = [
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
]
_DAYS: Final = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_LINE: Final = re.compile(r"(?P<cron>\S+(?:\s+\S+){4})\s+for\s+(?P<duration>\S+)")
_DURATION: Final = re.compile(r"(?:(?P<h>[0-9]{1,4})h)?(?:(?P<m>[0-9]{1,5})m)?")


class WindowsError(ValueError):
    """The annotations cannot be used. The text names annotation, value and rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowState:
    """The state of the windows at one moment."""

    open: bool
    changes_at: datetime | None
    """When the open window closes, or when the next one opens. None if none ever opens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """One field of a cron expression."""

    values: frozenset[int]
    restricted: bool
    """True if the field does not begin with a star. Day of month and day of week are then alternatives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: _Field
    months: frozenset[int]
    weekdays: _Field
    """0 is Sunday."""

    lasts: timedelta

    def _is_on(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_day = day.day in self.days.values
        by_weekday = day.isoweekday() % 7 in self.weekdays.values
        if self.days.restricted and self.weekdays.restricted:
            return by_day or by_weekday
        return by_day and by_weekday

    def openings(self, day: date, zone: tzinfo) -> Iterator[datetime]:
        """The moments of that day at which the window opens, in order."""
        if not self._is_on(day):
            return
        for hour in self.hours:
            for minute in self.minutes:
                yield datetime.combine(day, time(hour, minute), zone).astimezone(UTC)

    def closing(self, opened: datetime, zone: tzinfo) -> datetime:
        """When a window that opened at `opened` closes, by the local clock."""
        wall = opened.astimezone(zone).replace(tzinfo=None) + self.lasts
        return wall.replace(tzinfo=zone).astimezone(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """All windows of one check."""

    zone: tzinfo
    windows: Sequence[_Window]

    def stand(self, now: datetime) -> WindowState:
        """Whether a workload may start now, and until or from when."""
        closings = [at for window in self.windows if (at := self._closes(window, now)) is not None]
        if closings:
            return WindowState(open=True, changes_at=max(closings))
        openings = [at for window in self.windows if (at := self._opens(window, now)) is not None]
        return WindowState(open=False, changes_at=min(openings, default=None))

    def _closes(self, window: _Window, now: datetime) -> datetime | None:
        """When the window that is open now closes."""
        today = now.astimezone(self.zone).date()
        latest: datetime | None = None
        for back in range(window.lasts.days + 2):
            for opened in window.openings(today - timedelta(days=back), self.zone):
                closes = window.closing(opened, self.zone)
                if opened <= now < closes:
                    latest = closes if latest is None else max(latest, closes)
        return latest

    def _opens(self, window: _Window, now: datetime) -> datetime | None:
        today = now.astimezone(self.zone).date()
        for ahead in range(LOOK_AHEAD_DAYS):
            for opens in window.openings(today + timedelta(days=ahead), self.zone):
                if opens > now:
                    return opens
        return None


def read_windows(annotations: Mapping[str, str]) -> Windows:
    """Read the annotations of a check. Raises `WindowsError`."""
    name = annotations.get(TIME_ZONE, "UTC")
    try:
        zone = ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise WindowsError(f"annotation {TIME_ZONE}: {name!r} is no known time zone") from error
    lines = [line.strip() for line in annotations.get(WINDOWS, "").splitlines() if line.strip()]
    if not lines:
        raise WindowsError(f"annotation {WINDOWS}: no window; a line is `0 22 * * 1-5 for 8h`")
    if len(lines) > LINES_MAX:
        raise WindowsError(f"annotation {WINDOWS}: more than {LINES_MAX} lines")
    try:
        return Windows(zone=zone, windows=tuple(_window(line) for line in lines))
    except ValueError as error:
        raise WindowsError(f"annotation {WINDOWS}: {error}") from error


def _window(line: str) -> _Window:
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError(f"{line!r}: expected five fields, `for`, and a duration such as 8h30m")
    minute, hour, day, month, weekday = found["cron"].lower().split()
    weekdays = _field(weekday, 0, 7, _DAYS, "day of week")
    return _Window(
        minutes=tuple(sorted(_field(minute, 0, 59, (), "minute").values)),
        hours=tuple(sorted(_field(hour, 0, 23, (), "hour").values)),
        days=_field(day, 1, 31, (), "day of month"),
        months=_field(month, 1, 12, _MONTHS, "month").values,
        weekdays=_Field(
            values=frozenset(value % 7 for value in weekdays.values),
            restricted=weekdays.restricted,
        ),
        lasts=_lasts(found["duration"]),
    )


def _lasts(text: str) -> timedelta:
    found = _DURATION.fullmatch(text)
    lasts = timedelta()
    if found is not None:
        lasts = timedelta(hours=int(found["h"] or 0), minutes=int(found["m"] or 0))
    if not timedelta() < lasts <= OPEN_MAX:
        raise ValueError(f"{text!r} is no duration from 1m to {OPEN_MAX.days * 24}h")
    return lasts


def _field(text: str, least: int, most: int, names: Sequence[str], what: str) -> _Field:
    values: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        if slash and not (step.isascii() and step.isdigit() and 0 < int(step) <= most):
            raise ValueError(f"{what}: {part!r}: a step is a number from 1 to {most}")
        first, dash, last = span.partition("-")
        if span == "*":
            low, high = least, most
        else:
            low = _value(first, least, most, names, what)
            high = _value(last, least, most, names, what) if dash else (most if slash else low)
        if low > high:
            raise ValueError(f"{what}: {part!r} ends before it begins")
        values.update(range(low, high + 1, int(step) if slash else 1))
    return _Field(values=frozenset(values), restricted=not text.startswith("*"))


def _value(text: str, least: int, most: int, names: Sequence[str], what: str) -> int:
    if text in names:
        return names.index(text) + (least if names is not _DAYS else 0)
    if text.isascii() and text.isdigit() and least <= int(text) <= most:
        return int(text)
    raise ValueError(f"{what}: {text!r} is not from {least} to {most}")
