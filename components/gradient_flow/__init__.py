"""The figures of the page on gradient flow: charts over depth and steps, the map of a training, tables."""
