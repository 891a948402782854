"""Bytes of the cache. Numbers only."""

from __future__ import annotations

BLOCK_ROWS = 64
"""Rows of a block."""
PLAIN_CHANNELS = 448
"""Channels kept in 8 bits, those that are not rotated."""
ROTATED_CHANNELS = 64
"""Channels kept in bfloat16."""
GROUP_CHANNELS = 64
"""Channels that share a scale."""
GROUPS = PLAIN_CHANNELS // GROUP_CHANNELS
DATA_NBYTES = PLAIN_CHANNELS + 2 * ROTATED_CHANNELS
"""Data of a row."""
SCALE_NBYTES = 8
"""Scales of a row: seven, and one byte unused."""
ROW_NBYTES = DATA_NBYTES + SCALE_NBYTES
BLOCK_NBYTES = -(-BLOCK_ROWS * ROW_NBYTES // DATA_NBYTES) * DATA_NBYTES
"""A block: data of all rows, scales of all rows, and padding that the kernel's loads want."""
LARGEST = 448.0
"""Largest float8_e4m3fn."""
