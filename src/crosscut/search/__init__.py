"""The loop and its parts."""
