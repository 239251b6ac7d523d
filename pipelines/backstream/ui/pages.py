"""Pages as HTML: whatever comes from data is escaped, and nothing is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import urlencode

from jinja2 import Environment

from backstream.ui.runs import Run

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { margin: 0 auto; max-width: 1200px; padding: 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid #8884; padding: .4rem .6rem; text-align: left; white-space: nowrap; }
td.number { font-variant-numeric: tabular-nums; text-align: right; }
.pass { color: #1a7f37; } .warn { color: #9a6700; } .fail, .error { color: #cf222e; }
@media (prefers-color-scheme: dark) {
  .pass { color: #3fb950; } .warn { color: #d29922; } .fail, .error { color: #f85149; }
}
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>{{ style }}</style>
</head>
<body>
<h1>{{ title }}</h1>
{% if rows is none %}<p>{{ sentence }}</p>
{% elif not rows %}<p>No run yet: start a Backfill, or trigger a DAG with a range.</p>
{% else %}<div class="wide"><table>
<thead><tr><th>Dataset</th><th>Range (UTC)</th><th>Mode</th><th>Verdict</th><th>Rows published</th>
<th>Planned</th><th>Run</th></tr></thead>
<tbody>
{% for row in rows %}<tr>
<td>{{ row.run.dataset }}</td>
<td>{{ row.run.interval }}</td>
<td>{{ row.run.mode }}</td>
<td class="{{ row.run.verdict }}">{{ row.run.verdict or "not audited" }}</td>
<td class="number">{{ "none" if row.run.rows is none else "{:,}".format(row.run.rows) }}</td>
<td>{{ row.planned }}</td>
<td>{% if row.run.has_report %}<a href="report?{{ row.query }}">{{ row.run.trigger }}</a>
{%- else %}{{ row.run.trigger }}{% endif %}</td>
</tr>
{% endfor %}</tbody>
</table></div>{% endif %}
</body>
</html>
"""

_TEMPLATE = Environment(autoescape=True).from_string(_PAGE)


def runs_page(runs: Sequence[Run]) -> str:
    """A table of runs, each with its verdict and a link to its report."""
    rows = [
        {
            "run": run,
            "query": urlencode({"dag_id": run.dag_id, "run_id": run.trigger, "plan": run.plan_hash}),
            "planned": datetime.fromtimestamp(run.planned_at_s, UTC).strftime("%Y-%m-%dT%H:%MZ"),
        }
        for run in runs
    ]
    return _TEMPLATE.render(title="Backfills", style=_STYLE, rows=rows)


def note_page(title: str, sentence: str) -> str:
    """A page with one sentence."""
    return _TEMPLATE.render(title=title, style=_STYLE, rows=None, sentence=sentence)
