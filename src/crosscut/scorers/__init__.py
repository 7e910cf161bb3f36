"""The expensive function and the meter that counts every call of it."""
