"""Labels over HTTP: pictures decoded and labels made."""
