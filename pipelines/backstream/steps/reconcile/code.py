"""Code: the same records, and another value of them, in a way that is no accident."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from backstream.core.differences import differences
from backstream.core.plan import Plan
from backstream.steps.reconcile.ours import RUN
from backstream.steps.reconcile.pairs import TOLERANCE, Mask
from backstream.steps.reconcile.rules import Case, Evidence, first_of, told

LEAST_ALIKE, SHARE_ALIKE, LEAST_OF_ALL, SHARE_OF_ALL = 3, 0.5, 10, 0.9


def code(case: Case) -> Evidence:
    """The windows of the same records where every aggregate that differs does so systematically."""
    same = _same_records(case)
    reasons = {name: _reasons(case, name, same) for name in case.pairs.shape.aggregates}
    explained, differing = same.copy(), np.zeros(len(same), dtype=bool)
    for name, found in reasons.items():
        differs = ~case.pairs.equal(name)
        differing |= differs
        explained &= ~differs | np.array([reason is not None for reason in found], dtype=bool)

    def text(place: int) -> str:
        said = [found[place] for name, found in reasons.items() if not case.pairs.equal(name)[place]]
        return "the same records; " + "; ".join(each for each in said if each)

    return told(case, explained & differing, text) if same.any() else first_of()


def _same_records(case: Case) -> Mask:
    """Where both count the same; where nothing counts, where another aggregate is equal."""
    pairs, rows = case.pairs, case.rows
    both = (rows["is_ours"] & rows["is_theirs"]).to_numpy()
    if pairs.counting:
        return np.asarray(both & np.all([pairs.equal(name) for name in pairs.counting], axis=0))
    return np.asarray(both & np.any([pairs.equal(name) for name in pairs.shape.aggregates], axis=0))


def _reasons(case: Case, name: str, same: Mask) -> list[str | None]:
    """Why an aggregate differs, by row; None where there is no reason."""
    found: list[str | None] = [None] * len(same)
    differs = same & ~case.pairs.equal(name)
    _fill(found, differs, _redefined(case, name))
    if case.pairs.shape.is_number(name):
        ours, theirs = (case.rows[f"{side}__{name}"].to_numpy(dtype=float) for side in ("ours", "theirs"))
        with np.errstate(divide="ignore", invalid="ignore"):
            _fill_alike(found, differs, theirs / ours, f"{name} is {{}} times ours")
        _fill_alike(found, differs, theirs - ours, f"{name} is ours plus {{}}")
    count, possible = int(differs.sum()), int(same.sum())
    if count >= LEAST_OF_ALL and count >= SHARE_OF_ALL * possible:
        said = f"{name} differs in {count:,} of {possible:,} windows of the same count"
        _fill(found, differs, [said] * len(same))
    return found


def _fill(found: list[str | None], mask: Mask, said: list[str | None] | list[str]) -> None:
    for place in np.flatnonzero(mask):
        found[place] = found[place] or said[place]


def _fill_alike(found: list[str | None], differs: Mask, values: np.ndarray, said: str) -> None:
    """Rows whose value is one that many have, within the tolerance."""
    places = np.flatnonzero(differs & np.isfinite(values))
    places = places[np.argsort(values[places], kind="stable")]
    begin = 0
    for end in range(1, len(places) + 1):
        is_last = end == len(places)
        if is_last or abs(values[places[end]] - values[places[begin]]) > _width(values[places[begin]]):
            alike = places[begin:end]
            if len(alike) >= max(LEAST_ALIKE, SHARE_ALIKE * differs.sum()):
                text = f"{said.format(f'{values[alike[0]]:.9g}')} in {len(alike):,} windows"
                for place in alike:
                    found[place] = found[place] or text
            begin = end


def _width(value: float) -> float:
    return 100 * TOLERANCE * max(abs(value), TOLERANCE)


def _redefined(case: Case, name: str) -> list[str | None]:
    """What the definition says otherwise now than when the run of a window was planned."""
    said = {run_id: _change(case, plan, name) for run_id, plan in case.ours.plans.items()}
    return [said.get(run_id) if isinstance(run_id, str) else None for run_id in case.rows[RUN]]


def _change(case: Case, plan: Plan | None, name: str) -> str | None:
    if plan is None:
        return None
    was: Mapping[str, str] = plan.definition.get("aggregates", {})
    changed = differences({name: was.get(name)}, {name: case.definition.aggregates.get(name)})
    return f"the definition says otherwise since run {plan.run_id}: {changed[0]}" if changed else None
