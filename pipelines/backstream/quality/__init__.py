"""The gate: what a run should have brought, what it brought, and a verdict over the difference."""
