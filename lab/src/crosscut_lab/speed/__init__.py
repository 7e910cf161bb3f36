"""Time against other libraries, and load tests."""
