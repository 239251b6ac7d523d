"""List the presets: kinds of archives whose columns are known."""

from __future__ import annotations

from enum import StrEnum


class Preset(StrEnum):
    """A kind of archive whose columns have known meanings."""

    KAFKA = "kafka"
    """Records of a Kafka topic with partition and offset, e.g., written by Kafka Connect."""
    DEBEZIUM = "debezium"
    """Change events of a database."""
    CLOUDEVENTS = "cloudevents"
    """Events in the format of the CNCF."""
    WEB_LOGS = "web-logs"
    """Access logs of a web server."""
