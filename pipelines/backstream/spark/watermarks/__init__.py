"""The stream as it was: what arrived when, its watermarks, and what they mean for each window."""
