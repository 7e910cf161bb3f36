"""The papers' experiments: what there is (`inventory`), how it is run (`experiments`), from which data (`making`)."""
