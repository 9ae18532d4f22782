"""One module for each group of axes: what it changes in a request, and what in the answer."""
