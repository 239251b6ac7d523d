"""Run a job of backstream in one of several places, and follow it there."""
