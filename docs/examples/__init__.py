"""Programs of the guides. They need no package of backstream."""
