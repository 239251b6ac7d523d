"""Translate the options of a Flink SQL job that decide about watermarks; refuse those that would change rows."""

from __future__ import annotations

import re
from typing import Any

from sqlglot import exp

from backstream.definition.flink_sql.expressions import interval_ms, place_of
from backstream.definition.flink_sql.script import DeclaredTable, FlinkScript
from backstream.eventtime.instants import duration_text
from backstream.eventtime.time_zones import list_time_zones

_DURATION = re.compile(r"(\d+)\s*([a-zµ]*)")
_UNITS_MS = {
    unit: length
    for length, units in {
        1: " ms milli millis millisecond milliseconds",
        1_000: "s sec secs second seconds",
        60_000: "m min minute minutes",
        3_600_000: "h hour hours",
        86_400_000: "d day days",
    }.items()
    for unit in units.split(" ")
}
_CONNECTORS = ("kafka", "pulsar")
"""The connectors that make watermarks themselves."""
_PLAIN_CONNECTORS = ("filesystem", "datagen", "faker")
"""The connectors whose watermarks an operator of the plan makes."""
_CHANGELOGS = ("debezium", "canal", "maxwell", "ogg")
_REFUSED_OPTIONS = {
    "scan.watermark.alignment": "aligned watermarks are not possible: a source waits for another one",
    "key.format": "columns of Kafka's key are not possible: an archive has the value of a record",
    "topic-pattern": "several topics are not possible in one table: write each as [[source]]",
}
_SETTINGS_WITHOUT_EFFECT = (
    *("pipeline.name", "pipeline.max-parallelism", "pipeline.object-reuse", "pipeline.operator-chaining"),
    *("pipeline.jars", "parallelism.", "execution.checkpointing.", "execution.attached", "execution.target"),
    *("state.", "restart-strategy", "high-availability", "sql-client.", "table.exec.state.ttl"),
    *("table.exec.resource.", "table.optimizer.", "table.dml-sync", "table.plan."),
    *("taskmanager.", "jobmanager.", "rest.", "metrics.", "kubernetes.", "yarn."),
)
"""The beginnings of settings on which no row of a window depends."""
_SETTINGS = ("table.exec.source.idle-timeout", "pipeline.auto-watermark-interval", "table.local-time-zone")
_HARMLESS = {
    "execution.runtime-mode": ("streaming",),
    "table.exec.mini-batch.enabled": ("false",),
    "table.exec.emit.early-fire.enabled": ("false",),
    "table.exec.emit.late-fire.enabled": ("false",),
    "table.exec.sink.not-null-enforcer": ("error",),
    "table.sql-dialect": ("default",),
    "table.exec.legacy-cast-behaviour": ("disabled",),
}
"""The values of settings that change no row."""
_UTC = ("utc", "etc/utc", "gmt", "z", "default")


def watermark_section(script: FlinkScript, table: DeclaredTable) -> dict[str, Any]:
    """Return the section `[watermark]` of a table.

    Raises:
        SpecError: with line and column of a statement that would give other rows.
    """
    _require_known_settings(script)
    has_operator = _require_source(script, table)
    if table.watermark is None:
        script.source.refuse(table.at, f"{table.name} has no WATERMARK FOR, so no window of event time can fire")
    name, expression, at = table.watermark
    section: dict[str, Any] = {
        "strategy": "flink_sql",
        "delay": duration_text(_delay_ms(script, name, expression, at)),
    }
    section |= {"topology": "operator"} if has_operator else {}
    idle = table.options.get("scan.watermark.idle-timeout") or script.settings.get(
        "table.exec.source.idle-timeout"
    )
    if idle and (timeout_ms := _duration_ms(script, *idle)):
        section["idle_timeout"] = duration_text(timeout_ms)
    if strategy := table.option("scan.watermark.emit.strategy"):
        if strategy not in ("on-periodic", "on-event"):
            script.source.refuse(
                table.options["scan.watermark.emit.strategy"][1], f"the strategy {strategy} is not known"
            )
        section |= {"emit": "on_event"} if strategy == "on-event" else {}
    if interval := script.settings.get("pipeline.auto-watermark-interval"):
        section["emit_interval"] = duration_text(_duration_ms(script, *interval))
    return section


def local_time_zone(script: FlinkScript) -> str | None:
    """Return the time zone of `TIMESTAMP_LTZ`; None for UTC."""
    value, at = script.settings.get("table.local-time-zone", ("UTC", 0))
    if value.lower() in _UTC:
        return None
    if value not in list_time_zones():
        script.source.refuse(at, f"the time zone must have a name such as Europe/Berlin, got {value!r}")
    return value


def _delay_ms(script: FlinkScript, name: str, expression: exp.Expr, at: int) -> int:
    if isinstance(expression, exp.Paren):
        return _delay_ms(script, name, expression.this, at)
    if isinstance(expression, exp.Column) and expression.name == name:
        return 0
    if (
        isinstance(expression, exp.Sub)
        and isinstance(expression.this, exp.Column)
        and expression.this.name == name
    ):
        delay_ms = interval_ms(expression.expression)
        if delay_ms is not None:
            return delay_ms
    script.source.refuse(
        place_of(expression) or at,
        f"a watermark must be {name}, or {name} less an INTERVAL of days, hours, minutes, or seconds",
    )
    return 0


def _duration_ms(script: FlinkScript, text: str, at: int) -> int:
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None or found[2] not in _UNITS_MS:
        script.source.refuse(at, f"the duration {text!r} must be a number with ms, s, min, h, or d")
    return int(found[1]) * _UNITS_MS[found[2]]


def _require_known_settings(script: FlinkScript) -> None:
    for key, (value, at) in script.settings.items():
        if key in _SETTINGS or key.startswith(_SETTINGS_WITHOUT_EFFECT):
            continue
        if value.strip().lower() not in _HARMLESS.get(key, ()):
            script.source.refuse(at, f"the setting {key} = {value!r} is not possible: it may change rows")


def _require_source(script: FlinkScript, table: DeclaredTable) -> bool:
    """Check the options of a table, and return whether an operator of the plan makes its watermarks."""
    connector, form = table.option("connector"), table.option("format") or table.option("value.format") or ""
    if connector not in (*_CONNECTORS, *_PLAIN_CONNECTORS) or form.startswith(_CHANGELOGS):
        given = form if form.startswith(_CHANGELOGS) else connector
        place = table.options.get("connector", ("", table.at))[1]
        reason = "its rows change, or its watermarks have other rules"
        script.source.refuse(place, f"a source of {given or 'no connector'} is not possible: {reason}")
    has_operator = connector in _PLAIN_CONNECTORS
    for key, (value, at) in table.options.items():
        if has_operator and key.startswith("scan.watermark."):
            script.source.refuse(
                at, f"{key} has no meaning for {connector}, which does not make watermarks itself"
            )
        for refused, sentence in _REFUSED_OPTIONS.items():
            if key.startswith(refused):
                script.source.refuse(at, sentence)
        if key == "topic" and ";" in value:
            script.source.refuse(at, _REFUSED_OPTIONS["topic-pattern"])
    return has_operator
