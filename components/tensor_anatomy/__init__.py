"""The figures of the page on tensors: memory strips beside the program, and the charts of the panels."""
