"""The small program that does for the agent what only root may do: restart it, begin an update.

The agent stays an ordinary user in its sandbox. It asks by a file (:mod:`agent.helper.exchange`); systemd sees the file
and starts ``python -I -m agent.helper`` as root, which believes nothing of it, decides by a configuration that only
root can write, and answers. Decision 19 says why it is so.

Whatever stands here runs as root or beside it, so it is the standard library, these files, and nothing else.
"""
