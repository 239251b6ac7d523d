"""DataFrame in, DataFrame out: one twin per formula of `core`."""
