"""The local service: the specification's HTTP interface on one machine, as a library and as a program."""
