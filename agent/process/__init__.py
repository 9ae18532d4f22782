"""Other people's programs. What bounds them is apart from what runs them, which is loaded when the first one runs."""
