"""The figures of the page on memory: the timeline that is stepped, charts of settings, tables."""
