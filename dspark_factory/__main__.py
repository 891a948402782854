"""``python -m dspark_factory``, the same as ``dspark``."""

import sys

from dspark_factory.cli import main

if __name__ == "__main__":
    sys.exit(main())
