"""Measuring: every figure is taken beside others in the same run, and ratios within a round."""
