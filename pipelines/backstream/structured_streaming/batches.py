"""Define the micro-batches that a job of Structured Streaming wrote down, and check that they fit together.

For each batch, Spark writes one watermark `W` and the offsets at which the batch ends. They decide all fates: a
record of batch `b` is late for a window with the end `e` if `e <= W[b-1]`, and a window is emitted in the first
batch `n` with `e <= W[n]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import le
from typing import Any

from backstream.errors import SpecError
from backstream.eventtime.instants import instant_text

Offset = Mapping[str, Any]
"""The end of a batch in a source, as the source says it: `{"logOffset": 7}`, or `{"topic": {"0": 23}}`."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch.

    Attributes:
        number: its number in the query, from 0.
        watermark_ms: the watermark with which it began, in milliseconds since 1970.
        ends: by source, where it ends; a source without an offset is left out. The name of a source is its
            position in the query, unless the log has names.
        next_watermark_ms: the watermark of the next batch, which its commit has; None if no log has it.
        is_finished: whether the batch is known to have ended.
        began_ms: the clock when it was planned, in milliseconds since 1970; 0 if it is not known.
        records: the number of records that it read from all sources; None if only a checkpoint has the batch.
        start_id: the id of the start of the query that ran it; None if only a checkpoint has the batch.
    """

    number: int
    watermark_ms: int
    ends: Mapping[str, Offset]
    next_watermark_ms: int | None = None
    is_finished: bool = True
    began_ms: int = 0
    records: int | None = None
    start_id: str | None = None


@dataclass(frozen=True, slots=True)
class BatchLog:
    """Batches by ascending number; the numbers have gaps where logs are lost.

    Attributes:
        query_ids: the ids of the queries that wrote the logs.
        batches: the batches.
        files: by file source, the files that it listed, with the source's own number of a batch. That number
            counts only batches with new files of this source.
        place: the logs.
        policy: the policy of several watermarks, `min` or `max`; None if no log has it.
    """

    query_ids: frozenset[str]
    batches: tuple[Batch, ...]
    files: Mapping[str, Mapping[str, int]]
    place: str
    policy: str | None = None

    def batch_of_offset(self, source: str, topic: str, partition: str, offset: int) -> int | None:
        """Return the batch that read the record at an offset; None if no known batch has read it.

        If batches before it are unknown, the record may be that of an earlier one.
        """
        ends = [(batch.number, batch.ends.get(source, {}).get(topic, {})) for batch in self.batches]
        return next((number for number, end in ends if offset < end.get(partition, 0)), None)

    def batch_of_file(self, source: str, path: str) -> int | None:
        """Return the batch that read a file; None if no known batch has read it.

        Args:
            source: the source.
            path: the path, or its end, which only one file of the source has.
        """
        own = next((own for file, own in self.files.get(source, {}).items() if file.endswith(path)), None)
        ends = [(batch.number, batch.ends.get(source, {"logOffset": -1})) for batch in self.batches]
        return next((number for number, end in ends if own is not None and own <= end["logOffset"]), None)

    @property
    def source_names(self) -> list[str]:
        """The sources of the query."""
        return sorted({name for batch in self.batches for name in batch.ends})

    def topics_of(self, source: str) -> list[str]:
        """Return the topics of a source; none of a source of another kind."""
        ends = (batch.ends.get(source, {}) for batch in self.batches)
        return sorted({name for end in ends for name, value in end.items() if isinstance(value, Mapping)})

    @property
    def gaps(self) -> list[range]:
        """The numbers of the batches that no log has, from 0 on."""
        numbers = [-1, *(batch.number for batch in self.batches)]
        return [range(one + 1, two) for one, two in pairwise(numbers) if two > one + 1]


def merge_logs(logs: Sequence[BatchLog]) -> BatchLog:
    """Return the batches of several logs of one query; what two logs have must be equal.

    Raises:
        SpecError: when the logs contradict each other.
    """
    batches: dict[int, tuple[Batch, str]] = {}
    files: dict[str, dict[str, int]] = {}
    for log in logs:
        for batch in log.batches:
            if known := batches.get(batch.number):
                batches[batch.number] = (_merge_batch(*known, batch, log.place), known[1])
            else:
                batches[batch.number] = (batch, log.place)
        for source, listed in log.files.items():
            files.setdefault(source, {}).update(listed)
    ids = frozenset(each for log in logs for each in log.query_ids)
    places = ", ".join(dict.fromkeys(log.place for log in logs))
    policy = next((log.policy for log in logs if log.policy), None)
    return BatchLog(ids, tuple(batches[number][0] for number in sorted(batches)), files, places, policy)


def _merge_batch(one: Batch, place: str, two: Batch, other_place: str) -> Batch:
    for name in ("watermark_ms", "next_watermark_ms", "ends", "records"):
        values = getattr(one, name), getattr(two, name)
        if None not in values and values[0] != values[1]:
            texts = [_value_text(name, value) for value in values]
            msg = (
                f"batch {one.number} has another {_WORDS[name]} in two logs: {texts[0]} in {place}, {texts[1]} in"
                f" {other_place}\n\nhint: name the logs of one query only"
            )
            raise SpecError(msg)
    next_ms = one.next_watermark_ms if two.next_watermark_ms is None else two.next_watermark_ms
    is_finished, began_ms = one.is_finished or two.is_finished, one.began_ms or two.began_ms
    records, start_id = two.records if one.records is None else one.records, one.start_id or two.start_id
    return replace(
        one,
        next_watermark_ms=next_ms,
        is_finished=is_finished,
        began_ms=began_ms,
        records=records,
        start_id=start_id,
    )


_WORDS = {
    "watermark_ms": "watermark",
    "next_watermark_ms": "watermark for the next batch",
    "ends": "end",
    "records": "number of records",
}


def _value_text(name: str, value: Any) -> str:
    if name == "records":
        return f"{value:,}"
    return str(dict(value)) if name == "ends" else instant_text(value)


def require_sound(log: BatchLog) -> BatchLog:
    """Return a log without an unfinished last batch, after checking that it is the log of one query.

    Raises:
        SpecError: naming the batch, both values, and what to correct.
    """
    for problem in _list_problems(log):
        msg = f"{problem} ({log.place})"
        raise SpecError(msg)
    finished = log.batches if log.batches[-1].is_finished else log.batches[:-1]
    return replace(log, batches=finished)


def _list_problems(log: BatchLog) -> Iterator[str]:
    if len(log.query_ids) > 1:
        yield f"the logs are those of {len(log.query_ids)} queries: {', '.join(sorted(log.query_ids))}"
    if not any(batch.is_finished for batch in log.batches):
        yield "no batch of the query has ended"
    for batch in log.batches[:-1]:
        if not batch.is_finished:
            yield f"batch {batch.number} has no commit, and a later batch exists"
    for one, two in pairwise(log.batches):
        if not _follows(one, two):
            yield from _list_contradictions(one, two)


def _follows(one: Batch, two: Batch) -> bool:
    """Return whether two batches surely fit together; a year has half a million of them."""
    if two.watermark_ms < one.watermark_ms:
        return False
    is_next = one.next_watermark_ms in (None, two.watermark_ms) or two.number != one.number + 1
    return is_next and _advance(one.ends, two.ends)


def _list_contradictions(one: Batch, two: Batch) -> Iterator[str]:
    """Yield what two batches, one after the other, contradict each other in."""
    if two.watermark_ms < one.watermark_ms:
        texts = [instant_text(each.watermark_ms) for each in (one, two)]
        yield (
            f"the watermark falls from {texts[0]} in batch {one.number} to {texts[1]} in batch {two.number}: these"
            " are the logs of two queries, or a checkpoint was replaced"
        )
    is_next, next_ms = two.number == one.number + 1, one.next_watermark_ms
    if is_next and next_ms is not None and next_ms != two.watermark_ms:
        texts = [instant_text(each) for each in (next_ms, two.watermark_ms)]
        yield f"batch {one.number} ended with the watermark {texts[0]}, batch {two.number} began with {texts[1]}"
    for source, end in () if _advance(one.ends, two.ends) else one.ends.items():
        for place, offset in _positions(end):
            later = dict(_positions(two.ends.get(source, {}))).get(place)
            if later is None or later < offset:
                yield (
                    f"{' of '.join(filter(None, (place, f'source {source}')))} goes back from {offset} in batch"
                    f" {one.number} to {'nothing' if later is None else later} in batch {two.number}"
                )


def _advance(one: Mapping[str, Any], two: Mapping[str, Any]) -> bool:
    """Return whether no number in the ends of a batch is greater than that in the ends of a later batch."""
    if type(next(iter(one.values()), None)) is int:
        try:
            return all(map(le, one.values(), map(two.get, one)))  # type: ignore[arg-type]
        except TypeError:
            pass  # some values are no numbers
    for name, value in one.items():
        later = two.get(name)
        if type(value) is dict:
            if type(later) is not dict or not _advance(value, later):
                return False
        elif type(value) is int and (type(later) is not int or later < value):
            return False
    return True


def _positions(end: Offset) -> Iterator[tuple[str, int]]:
    """Yield the numbers in an offset with their names: those of partitions, or of the files."""
    for name, value in end.items():
        if isinstance(value, Mapping):
            yield from ((f"partition {key} of {name}", each) for key, each in value.items())
        elif name == "logOffset":
            yield "", value
