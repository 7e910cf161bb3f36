"""Measures, replays on a known matrix, studies, reports and plots."""
