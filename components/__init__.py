"""What is drawn: ``frame`` around every page, ``kit`` for all figures, and a folder of figures a page."""
