"""What all figures are made with: colours, tables, the stepper, zoom, and the base of their scripts."""
