"""One clear line for what Hydra or OmegaConf refuse."""
def explain(override, error):
    return repr((override, str(error), str(error.__cause__)))
