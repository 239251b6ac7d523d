"""Draw charts as inline SVG, for the report of a run and for the pages."""
