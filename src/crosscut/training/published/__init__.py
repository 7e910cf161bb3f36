"""The papers' models and recipes as published, beside ours: models, how they are fitted, recipes."""
