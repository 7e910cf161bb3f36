"""Arrays in, arrays out: products, compiled loops, selection, least squares."""
