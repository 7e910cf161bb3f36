"""The folder of the weights; `crosscut.models.likelihood` runs them."""

from pathlib import Path

FOLDER = Path(__file__).parent
