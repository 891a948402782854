"""Training of the small models that the project ships."""
