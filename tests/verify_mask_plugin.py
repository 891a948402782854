"""The on-demand plugin of ``plugins/dspark-verify-mask``, importable without an installation."""

from __future__ import annotations

import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "plugins" / "dspark-verify-mask" / "src"
if str(SOURCE) not in sys.path:
    sys.path.append(str(SOURCE))

from dspark_verify_mask import plugin as VERIFY_MASK

__all__ = ["VERIFY_MASK"]
