"""The only place that knows everything: builds the parts, wires them, starts them in order, stops them in reverse."""
