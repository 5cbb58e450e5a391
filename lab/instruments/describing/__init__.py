"""What something is called and where it happened: for people, as plain data.

``values`` describes tensors, ``names`` finds the program's own words for them, ``lines`` the line and ``modules`` the module
that is running.
"""
