"""Charts of the panels: data in, chart out."""
