"""Releases of the agent beside its package: verified, unpacked, tried, and kept or taken back.

These modules run as root, from the package and never from a release, so that no release judges itself. They are the
standard library, ``cryptography`` for one signature, and what stands here. Nothing in a folder of the agent's user is
trusted: the file of a release counts by its signature, the status file only for what it says about itself.

The steps, each on the disk before the next:

1. the release is unpacked beside the running one (:mod:`agent.update.install`);
2. ``state.json`` says that it is on trial (:mod:`agent.update.trial`): from here on each start of the service runs it;
3. each start is counted before it begins;
4. the verdict goes into ``state.json``, then the link ``current`` follows, then the service is restarted.
"""
