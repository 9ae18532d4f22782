"""Releases of the agent beside its package: verified, unpacked, tried, and kept or taken back.

These modules run as root, from the package and never from a release, so that no release judges itself. They are the
standard library, ``cryptography`` for one signature, and what stands here. Decision 56 says why it is so.

The steps, each on the disk before the next:

1. the release is unpacked beside the running one (:mod:`agent.release.unpack`);
2. ``state.json`` says that it is on trial (:mod:`agent.release.state`): from here on each start of the service runs it;
3. each start is counted before it begins (:mod:`agent.release.guard`);
4. the verdict goes into ``state.json``, then the link ``current`` follows, then the service is restarted.
"""
