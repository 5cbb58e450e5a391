"""The figures of the page on gradient modes: the program in bands, and the measured tables."""
