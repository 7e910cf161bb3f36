"""Top-k inner products over item vectors."""
