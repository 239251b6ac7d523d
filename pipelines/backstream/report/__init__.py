"""Run report: one self-contained HTML page, a Markdown summary, or JSON."""
