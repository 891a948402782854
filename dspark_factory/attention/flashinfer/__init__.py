"""Attention on CUDA: this project's Hopper kernel and FlashInfer's, chosen by timing them."""
