"""``fleet-simulator probe``: what a server does with each choice that the specification leaves open."""
