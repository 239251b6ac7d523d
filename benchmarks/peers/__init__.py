"""Other engines with the same job. Each engine runs in a separate process, and prints one line of JSON."""
