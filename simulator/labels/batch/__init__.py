"""A folder of labels made in one go: the work, the files, the manifest."""
