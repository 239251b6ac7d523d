"""TOML definitions: read, validated, and checked against the columns of their source."""
