"""The figures of the page on reproducibility: two ribbons of operations, the gap over steps, the tape of draws, this host."""
