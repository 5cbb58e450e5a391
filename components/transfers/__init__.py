"""The figures of the page on transfers: waits by line, copies by size, copies beside kernels."""
