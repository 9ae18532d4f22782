"""uPlot, which the report of a run and the console draw with."""
