"""Compare published or staged windows with the output of a live system, and classify the differences."""
