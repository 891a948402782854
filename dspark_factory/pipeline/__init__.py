"""From a built backend to graphs that are ready to replay: stages, graphs, and the lint before capture."""
