"""The papers' experiments: what there is (`inventory`), how it is run (`experiments`), on what data (`world_files`)."""
