"""Make random streams without a recording of Flink, in the form of the recordings."""

from __future__ import annotations

import random
from typing import Any

from backstream.eventtime.instants import HOUR_MS, MINUTE_MS, instant_ms

KINDS = ["monotonous", "bounded", "bounded", "punctuated", "punctuated", "time_lag", "none"]


def random_case(chance: random.Random, number: int) -> dict[str, Any]:
    """Return a random stream with extreme settings, in the form of the recordings."""
    interval_ms = chance.choice([0, 1, 7, 50, 200])
    span_ms = chance.choice([60, 900, 20_000])
    base_ms = chance.choice([0, -5_000, 1_700_000_000_000])
    partitions = chance.randint(1, 4)
    arrivals = sorted(base_ms + chance.randrange(span_ms) for _ in range(chance.randint(1, 40)))
    kind = chance.choice(["monotonous", "bounded", "bounded", "punctuated", "time_lag", "none"])
    records = [random_record(chance, at, partitions, span_ms, is_marker=kind == "punctuated") for at in arrivals]
    strategy: dict[str, Any] = {
        "kind": kind,
        "interval_ms": interval_ms,
        "delay_ms": chance.choice([0, 1, 30, 500]),
    }
    if chance.random() < 0.5:
        strategy["idle_timeout_ms"] = chance.choice([1, 20, 300])
    return {
        "name": f"parity/{number}",
        "partitions": partitions,
        "strategy": strategy,
        "window": random_window(chance),
        "allowed_lateness_ms": chance.choice([0, 0, 1, 40, 1_000]),
        "records": records,
        "topology": chance.choice(["splits", "splits", "splits", "subtasks", "operator"]),
        "partition_end": chance.choice(["hold", "hold", "release"]),
        "end_of_input": chance.choice(["active", "active", "raw"]),
        **({"start_ms": base_ms - chance.randrange(300)} if chance.random() < 0.3 else {}),
        **({"end_ms": base_ms + span_ms + chance.randrange(900)} if chance.random() < 0.3 else {}),
    }


def random_record(
    chance: random.Random, at: int, partitions: int, span_ms: int, *, is_marker: bool
) -> dict[str, int | str | bool]:
    """Return a record that arrives at a time, with an event time before it."""
    event_ms = at - chance.choice([0, 0, chance.randrange(40), chance.randrange(span_ms)])
    record: dict[str, int | str | bool] = {
        "arrival_ms": at,
        "partition": chance.randrange(partitions),
        "key": chance.choice("abc"),
        "ts": event_ms,
        "value": 1,
    }
    if is_marker and chance.random() < 0.4:
        record["marker"] = True if chance.random() < 0.5 else event_ms - chance.randrange(60)
    return record


def random_window(chance: random.Random) -> dict[str, int | str]:
    """Return a window of any kind."""
    size_ms = chance.choice([5, 35, 300, 1_000])
    match chance.choice(["tumbling", "sliding", "session", "cumulate"]):
        case "sliding":
            slide_ms = chance.choice([5, 20, 300, 450])
            offset_ms = chance.randrange(-slide_ms + 1, slide_ms)
            return {"kind": "sliding", "size_ms": size_ms, "slide_ms": slide_ms, "offset_ms": offset_ms}
        case "session":
            return {"kind": "session", "gap_ms": chance.choice([1, 10, 60, 500])}
        case "cumulate":
            return {"kind": "cumulate", "size_ms": size_ms * 4, "slide_ms": size_ms, "offset_ms": 0}
        case _:
            return {"kind": "tumbling", "size_ms": size_ms, "offset_ms": chance.randrange(-size_ms + 1, size_ms)}


def random_strategy(chance: random.Random) -> dict[str, Any]:
    """Return a strategy of any kind, half of them with idleness."""
    idleness = {"idle_timeout_ms": chance.choice([1, 20, 300])} if chance.random() < 0.5 else {}
    return {"kind": chance.choice(KINDS), "delay_ms": chance.choice([0, 1, 30, 500]), **idleness}


def random_union(chance: random.Random, number: int) -> dict[str, Any]:
    """Return a random stream of up to four sources; some have no records, and some have no partitions."""
    case = random_case(chance, number)
    partitions = chance.randint(1, 6)
    owners = [chance.randrange(4) for _ in range(partitions)]
    arrivals = [record["arrival_ms"] for record in case["records"]]
    sources = [
        {
            "partitions": [partition for partition, owner in enumerate(owners) if owner == source],
            "strategy": random_strategy(chance),
        }
        for source in chance.sample(range(4), 4)
        if source in owners or chance.random() < 0.1
    ]
    busy = chance.randint(1, partitions)
    records = [random_record(chance, at, busy, arrivals[-1] - arrivals[0] + 1, is_marker=True) for at in arrivals]
    settings = {key: case[key] for key in ("window", "allowed_lateness_ms", "start_ms", "end_ms") if key in case}
    interval = {"kind": "per_source", "interval_ms": case["strategy"]["interval_ms"]}
    return settings | {
        "name": f"union/{number}",
        "partitions": partitions,
        "strategy": interval,
        "records": records,
        "topology": "union",
        "sources": sources,
    }


def random_emission(chance: random.Random, number: int) -> dict[str, Any]:
    """Return a random stream whose watermark also moves between ticks."""
    case = random_case(chance, number)
    case["strategy"]["kind"] = chance.choice(["monotonous", "bounded"])
    case["emission"] = chance.choice(["on_event", "on_event", "micro_batch"])
    return case


def random_timers(chance: random.Random, number: int) -> dict[str, Any]:
    """Return a random stream with the process function of the recordings: timers at fixed delays, some deleted."""
    case = random_case(chance, number)
    delays_ms = [chance.choice([-100, 0, 1, 50, 40_000]) for _ in range(chance.randint(1, 3))]
    again = {"on_timer_period_ms": chance.choice([0, 5, 70]), "max_repeat": chance.choice([0, 2, 5])}
    for record in case["records"]:
        if chance.random() < 0.3:
            record["delete_timers"] = [record["ts"] + chance.choice([0, 1, 50])]
    return case | {"timers": {"delays_ms": delays_ms, **again}}


CHANGES = {
    "Europe/Berlin": ("2024-03-31T01:00Z", "2024-10-27T01:00Z"),
    "America/New_York": ("2024-03-10T07:00Z", "2024-11-03T06:00Z"),
    "Australia/Lord_Howe": ("2024-04-06T15:00Z", "2024-10-05T15:30Z"),
    "America/Sao_Paulo": ("2018-02-18T02:00Z", "2018-11-04T03:00Z"),
    "Africa/Casablanca": ("2024-03-10T02:00Z", "2024-04-14T02:00Z"),
    "Pacific/Apia": ("2011-12-30T10:00Z",),
    "Asia/Pyongyang": ("2015-08-14T15:00Z", "2018-05-04T15:00Z"),
}
"""Changes of the clocks; Apia left out a day, and clocks in Pyongyang changed by half an hour."""


def random_local(chance: random.Random, number: int) -> dict[str, Any]:
    """Return a random stream of windows in local time, over some days around a change of the clocks."""
    zone = chance.choice([*CHANGES])
    at_ms, span_ms = instant_ms(chance.choice(CHANGES[zone]), zone), chance.choice([3, 20, 80]) * HOUR_MS
    arrivals = sorted(at_ms + chance.randrange(-span_ms, span_ms) for _ in range(chance.randint(10, 60)))
    is_marker = chance.random() < 0.2
    window = random_local_window(chance)
    late_ms = 0 if window["kind"] == "session" else chance.choice([0, 0, HOUR_MS, 90 * MINUTE_MS])
    return {
        "name": f"local/{number}",
        "time_zone": zone,
        "partitions": 2,
        "strategy": {
            "kind": "punctuated" if is_marker else chance.choice(["monotonous", "bounded", "time_lag"]),
            "interval_ms": chance.choice([1, 30]) * MINUTE_MS,
            "delay_ms": chance.choice([0, 5, 90]) * MINUTE_MS,
        },
        "window": window,
        "allowed_lateness_ms": late_ms,
        "records": [random_record(chance, at, 2, 2 * HOUR_MS, is_marker=is_marker) for at in arrivals],
    }


def random_local_window(chance: random.Random) -> dict[str, int | str]:
    """Return a window of any kind, from minutes to days."""
    step_ms = chance.choice([15, 30, 60, 6 * 60, 24 * 60]) * MINUTE_MS
    offset_ms = chance.choice([0, 0, 15 * MINUTE_MS - 1])
    match chance.choice(["tumbling", "tumbling", "sliding", "session", "cumulate"]):
        case "sliding":
            return {"kind": "sliding", "size_ms": 2 * step_ms, "slide_ms": step_ms, "offset_ms": offset_ms}
        case "session":
            return {"kind": "session", "gap_ms": chance.choice([10, 25, 70, 300]) * MINUTE_MS}
        case "cumulate":
            return {"kind": "cumulate", "size_ms": 4 * step_ms, "slide_ms": step_ms, "offset_ms": offset_ms}
        case _:
            return {"kind": "tumbling", "size_ms": step_ms, "offset_ms": offset_ms}
