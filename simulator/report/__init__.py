"""Reports: one self-contained HTML file each, no network needed to read it."""
