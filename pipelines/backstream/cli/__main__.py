"""`python -m backstream.cli`."""

from backstream.cli import app

app()
