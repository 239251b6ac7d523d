"""`python -m backstream.cli`."""

from backstream.cli import main

main()
