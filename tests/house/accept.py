"""Write everything again that is computed from the code and stored beside it: `make accept`.

The tests compare each of them with the code, so read the difference before you commit it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.house import stored_names
from tests.quality import mutations

from backstream.quality import known_suites
from backstream.quality.suites import list_suites, load_suite, suite_digest
from backstream.runs.home import bundled_folder

REPOSITORY = Path(__file__).parents[2]
QUALITY_PAGE = REPOSITORY / "docs" / "quality.md"
DIGESTS = Path(known_suites.__file__)


def accepted_digests(text: str) -> str:
    """Return the text of `quality/known_suites.py` with the digests of the bundled suites.

    Raises:
        SpecError: if Great Expectations rejects a suite.
    """
    folder = bundled_folder("expectations")
    for name in list_suites(folder):
        load_suite(name, folder)
    rows = "".join(f'    "{name}": "{suite_digest(name, folder)}",\n' for name in list_suites(folder))
    return re.sub(r"(?<=SOUND = \{\n).*?(?=\}\n)", rows, text, flags=re.DOTALL)


def accepted_page(text: str) -> str:
    """Return the page on quality with the number of expectations of each suite, and the table of faults."""
    counts = {name: len(load_suite(name).entries) for name in list_suites()}
    lines = "".join(f"{name}: {count} expectation{'s' * (count != 1)}\n" for name, count in counts.items())
    text = re.sub(r"(?<=\$ backstream quality check\n).*?(?=```\n)", lines, text, count=1, flags=re.DOTALL)
    table = re.compile(re.escape(mutations.table().splitlines()[0]) + r"\n(?:\|.*\n)*")
    return table.sub(lambda _: f"{mutations.table()}\n", text)


def main() -> None:
    """Write the stored names, the digests, the numbers of the page on quality, and the reference."""
    for path, accepted in ((DIGESTS, accepted_digests), (QUALITY_PAGE, accepted_page)):
        path.write_text(accepted(path.read_text(encoding="utf-8")), encoding="utf-8")
    stored_names.write()
    subprocess.run([sys.executable, "-m", "docs.generate"], cwd=REPOSITORY, check=True)


if __name__ == "__main__":
    main()
