"""Where the weights lie; `crosscut.models.likelihood` runs them."""

from pathlib import Path

FOLDER = Path(__file__).parent
