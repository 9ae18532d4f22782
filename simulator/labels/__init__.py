"""QR labels for onboarding tests: made and read back, printed, found in photographs, damaged, and spoiled.

A label's text comes from :mod:`~simulator.labels.payload`, its code from :mod:`~simulator.labels.symbol`. Batches are
made by :func:`simulator.labels.make.make_labels`, read by :mod:`~simulator.labels.reading`, compared with a manifest by
:mod:`~simulator.labels.verify`. :mod:`~simulator.labels.damage` and :mod:`~simulator.labels.corpus` make what must
fail, as far as it must.
"""
