"""The conformance suite on the mask, and on a reader that stages trees and applies them."""

from __future__ import annotations

from dspark_verify_mask import plugin as VERIFY_MASK
from mask_reader import READER

from dspark_factory.testing import ProviderConformance


class TestVerifyMask(ProviderConformance):
    plugin = VERIFY_MASK


class TestMaskAndReader(ProviderConformance):
    plugin = VERIFY_MASK
    companions = (READER,)


class TestReader(ProviderConformance):
    plugin = READER
    companions = (VERIFY_MASK,)
