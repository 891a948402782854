"""The acceptance per position and the accept lengths that the DSpark paper published for Qwen3-4B agree."""

from __future__ import annotations

import numpy as np
import pytest

from dspark_factory.speculative.scheduler import survival

ACCEPTANCE = {
    ("math", "DSpark"): (0.9053, 0.8899, 0.8878, 0.8854, 0.8872, 0.8906, 0.8824),
    ("math", "DFlash"): (0.8850, 0.8270, 0.8198, 0.8338, 0.8414, 0.8390, 0.8277),
    ("math", "Eagle3"): (0.8106, 0.8231, 0.8382, 0.8442, 0.8508, 0.8557, 0.8502),
    ("code", "DSpark"): (0.8857, 0.8719, 0.8598, 0.8608, 0.8579, 0.8594, 0.8510),
    ("code", "DFlash"): (0.8654, 0.8145, 0.7971, 0.8013, 0.8098, 0.8014, 0.7770),
    ("code", "Eagle3"): (0.7710, 0.7737, 0.7812, 0.7913, 0.7870, 0.7939, 0.7840),
    ("chat", "DSpark"): (0.7353, 0.7376, 0.7402, 0.7441, 0.7583, 0.7656, 0.7609),
    ("chat", "DFlash"): (0.7181, 0.6479, 0.6382, 0.6606, 0.6820, 0.6919, 0.6877),
    ("chat", "Eagle3"): (0.5336, 0.5894, 0.6421, 0.6782, 0.7086, 0.7289, 0.7325),
}
"""Acceptance of drafts 1 to 7, given that the drafts before were accepted: digitised from the paper's Fig. 2."""

ACCEPT_LENGTHS = {
    ("math", "DSpark"): (6.11, 5.70, 4.89),
    ("math", "DFlash"): (5.40, 4.85, 4.15),
    ("math", "Eagle3"): (5.14, 4.62, 3.92),
    ("code", "DSpark"): (5.13, 5.38, 4.86),
    ("code", "DFlash"): (4.40, 4.74, 4.18),
    ("code", "Eagle3"): (3.69, 4.16, 3.77),
    ("chat", "DSpark"): (3.64, 3.54, 3.29),
    ("chat", "DFlash"): (3.07, 2.96, 2.83),
    ("chat", "Eagle3"): (2.39, 2.26, 2.55),
}
"""Accept length of the domain's three benchmarks, bonus included: printed in the paper's Table 1, seven drafts."""


@pytest.mark.parametrize(("domain", "drafter"), list(ACCEPTANCE))
def test_survival_of_the_published_rates_adds_up_to_the_published_accept_length(domain, drafter):
    """Rates are read off a figure and averaged over benchmarks before they are multiplied, hence the tolerance."""
    own = 1 + survival(np.array(ACCEPTANCE[domain, drafter])).sum()
    assert own == pytest.approx(np.mean(ACCEPT_LENGTHS[domain, drafter]), abs=0.06)
