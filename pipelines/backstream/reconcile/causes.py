"""Causes of a difference between one of our windows and the same window of a live system.

A label depends only on evidence. The time-zone shift comes first, because it concerns all windows. The other
rules follow in the order below, and the first rule with evidence gives the label. In these rules, a window is one
window of one key. `ours` is the published or staged value, `theirs` the live value. Numbers are equal if they
differ by at most 1e-9 of the larger one. Null equals null, and NaN equals NaN.

Time-zone shift (`time_shift.py`)
    The live window starts at our window start plus a whole number of quarter-hours, at most 14 h either way. The
    offset is one number for all windows, or at each window the UTC offset of a zone of the IANA database, added or
    subtracted. The shift must match at least 10 windows, at least 80 % of the windows in the time that the live
    output covers, and more windows than without a shift. No other shift may match half as many, because repetitive
    data match several shifts. Windows that are equal after the shift have this label. The other rules compare the
    remaining ones with the shifted window.

Late data (`rules.py`)
    All live aggregates equal those of another pane of ours: `first` (on-time records only), `live` (the last
    result of the stream), `final` (all records), or a single firing if all panes are kept. A missing live window
    matches a pane without records.

Duplicate (`input_rules.py`), one of:
    * The live output has the same row more than once.
    * The live record count exceeds ours by the number of duplicates in the input files, by `deduplicate_on`.
    * The live value is a whole multiple (2 or more) of ours in every additive aggregate and equal in every other
      one. We count at least 5 records in the window, or in all its keys together if all have the same multiple.

Missing input (`input_rules.py`), one of:
    * The live output has no row of any key in this window.
    * The live output has no row of this key in any window, and we have at least two.
    * The live output lacks as many records as certain input files have in this window, with or without duplicates,
      and lacks these files in all their windows.
    * The live output lacks as many records, over all keys, as certain source partitions have in this window, and
      lacks these source partitions in all windows.
    * The live output has more records, as many as input files have that the run did not read. With
      `deduplicate_on`, the number of records in these files is an upper bound: their duplicates are unknown. If
      duplicates in other files match too, the rule that matches the larger share of its windows wins.
    * The live output has more records than all input files.

Code (`rules.py`)
    Both sides count the same records; without a record count, another aggregate is equal. Each aggregate that
    differs does so systematically: by one factor or one summand in at least 3 windows and half of its differing
    windows, or in at least 9 of 10 windows (and at least 10) with the same count, or its expression in the
    definition changed after the plan of the run.

Unknown
    No rule has evidence.

Rules about record counts need an aggregate `count(*)` and windows with fixed bounds.
"""

from __future__ import annotations

from enum import StrEnum


class Cause(StrEnum):
    """Cause of a difference."""

    LATE_DATA = "late data"
    DUPLICATE = "duplicate"
    MISSING_INPUT = "missing input"
    TIME_ZONE_SHIFT = "time-zone shift"
    CODE = "code"
    UNKNOWN = "unknown"
