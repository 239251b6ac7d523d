"""Why a window of ours and the same window of a live system differ.

A label follows from evidence and from nothing else. The causes are tried in the order below, after the rule for
a time-zone shift, which is about all windows at once; the first whose evidence holds is the label. A window is
one key and one window here. `ours` is the value that is published (or staged), `theirs` that of the live system.
Numbers are equal when they differ by no more than 1e-9 of the larger one; null and NaN are equal.

Time-zone shift (`shift.py`)
    Theirs is found at our window's start plus a whole number of quarter-hours, up to 14 h either way: one number
    for all windows, or what a zone of the IANA database says at each (its offset from UTC, or the reverse). At
    least 10 windows and 80 % of those that fall into the time theirs covers must be found so, and more than
    without a shift. No other shift may find half as many, or the data repeat themselves and nothing is told. The
    windows equal after the shift have this label; what still differs is judged by the other rules, against the
    shifted window.

Late data (`lateness.py`)
    Every aggregate of theirs is that of another pane of ours than the published one: `first` (what was on time),
    `live` (what the stream had in the end) or `final` (all records), or of one of its firings where they are
    kept. A window that theirs lacks counts as such a pane where that pane has no record.

Duplicate (`copies.py`), one of
    * theirs has the same row more than once;
    * theirs counts as many records more than ours as the input files hold copies that `deduplicate_on` removes;
    * theirs is a whole multiple (2 or more) of ours in every aggregate that adds up, and equal in every other,
      where ours counts at least 5 records in the window, or in all keys of it together, when all of them are
      that multiple.

Missing input (`missing.py`), one of
    * theirs has no row of any key in this window;
    * theirs has no row of this key in any window, and ours has it in at least two;
    * theirs has as many records less as certain input files hold here (copies may or may not count), and these
      files are missing in all windows that they touch;
    * theirs has as many records less, over all keys, as certain source partitions have here, and these are
      missing in all windows;
    * theirs has as many records more as input files hold here that the run has not read (at most as many with
      `deduplicate_on`: nobody has looked for copies in them). Where copies in other files fit too, the label is
      that which fits the larger share of the windows it could be about;
    * theirs has more records than all input files hold.

Code (`code.py`)
    Both count the same records (where nothing counts them: another aggregate is equal), and each aggregate that
    differs does so systematically: by one factor or one summand in at least 3 windows and half of those where it
    differs, in at least 9 of 10 windows (and at least 10) of the same count, or the definition has another
    expression for it now than when the run was planned.

Unknown
    None of these.

What needs counts needs an aggregate `count(*)`, and windows of fixed bounds.
"""

from __future__ import annotations

from enum import StrEnum


class Cause(StrEnum):
    """Why a window differs."""

    LATE_DATA = "late data"
    DUPLICATE = "duplicate"
    MISSING_INPUT = "missing input"
    TIME_ZONE_SHIFT = "time-zone shift"
    CODE = "code"
    UNKNOWN = "unknown"
