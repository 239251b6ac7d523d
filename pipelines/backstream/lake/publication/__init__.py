"""Publish the staged files of a run, restore an earlier state, and record what changed."""
