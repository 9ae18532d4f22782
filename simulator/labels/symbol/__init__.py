"""One QR symbol: encoded, drawn, and read back by a panel of decoders."""
