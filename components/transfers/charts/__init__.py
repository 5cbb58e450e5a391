"""Pure functions from a result to a chart."""
