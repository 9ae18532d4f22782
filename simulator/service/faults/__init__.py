"""Faults that are wanted: which requests meet them, when, and what happens to those.

``model`` is a rule as it is sent, ``short_form`` an effect as one word, ``rules`` the rules that a service has, in
memory. What carries them out is :mod:`simulator.service.fault_layer`.
"""
