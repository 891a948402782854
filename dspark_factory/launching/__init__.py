"""Running the jobs of a sweep, each in a process of its own."""
