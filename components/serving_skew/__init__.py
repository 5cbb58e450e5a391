"""The figures of the page on serving: two paths stage by stage, the power of a golden set, drift."""
