"""Name the columns of a CSV file by its header."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def name_header(header: Sequence[str]) -> tuple[str, ...]:
    """Return a name per column, as Spark names them: an empty or repeated name gets the position, from 0.

    `id,,at,AT` has the columns `id`, `_c1`, `at2`, and `AT3`: Spark does not distinguish upper and lower case.
    """
    names = [name.strip() for name in header]
    counts = Counter(name.lower() for name in names)
    unique = tuple(
        f"_c{at}" if not name else f"{name}{at}" if counts[name.lower()] > 1 else name
        for at, name in enumerate(names)
    )
    return unique if unique == tuple(names) else name_header(unique)  # `a,a,a0` has another `a0`
