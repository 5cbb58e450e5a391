"""The figures of the page on the autograd graph: the picture that is stepped, tables, and the classic picture."""
