"""Rival methods and back ends, as plug-ins of crosscut."""
