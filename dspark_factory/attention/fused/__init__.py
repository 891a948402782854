"""Triton kernels for what a layer does around attention in decode and verify steps; torch is their truth."""
