"""Types and formulas, standard library only: the slow, obvious reference that the Spark twins are held to."""
