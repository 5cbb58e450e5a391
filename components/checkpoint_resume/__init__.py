"""The figures of the page on stopping and going on: two curves and their gap, parts, names, files, events of a program."""
