"""Other engines on the same job. Each runs as a process of its own and leaves one line of JSON."""
