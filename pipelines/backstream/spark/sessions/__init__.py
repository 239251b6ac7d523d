"""Sessions: windows that depend on the other events of their key."""
