"""What the records of a sweep say together: rows, knobs without effect, and a recommendation."""
