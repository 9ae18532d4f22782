"""Labels over HTTP: pictures decoded and labels made, in processes of their own."""
