"""Batches are checked before anything is staged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dspark_factory.errors import BatchError
from dspark_factory.pipeline.batch import make_batch, split
from dspark_factory.planning.graph_keys import LayoutForm, Mode
from tests.geometry import DIMS

DIMS_128 = replace(DIMS, context_length=128)


def verify(prefix_lens, token_ids, **options):
    return make_batch(
        DIMS_128,
        Mode.TARGET_VERIFY,
        slots=range(len(prefix_lens)),
        prefix_lens=prefix_lens,
        token_ids=token_ids,
        **options,
    )


@pytest.mark.parametrize("prefix", range(121, 128))
def test_a_verify_window_is_clipped_at_the_context_limit(prefix):
    """Field report 30: no row has a position of 128 or more."""
    batch = verify([prefix], [[1] * 6])
    assert batch.row_lens == (min(6, 128 - prefix),)
    assert prefix + batch.row_lens[0] <= 128


def test_a_request_at_the_limit_is_refused_by_name_not_given_a_negative_length():
    """Field report 30: a prefix of 128 leaves no row."""
    with pytest.raises(
        BatchError, match=r"slot 0 with a prefix of 128 and 0 rows passes pipeline\.context_length=128"
    ):
        verify([128], [[1] * 6])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slots": [0, 0]}, "not all different"),
        ({"slots": [0, 4]}, "slot 4 lies outside the pool of 4"),
        ({"slots": [0, -1]}, "slot -1 lies outside the pool of 4"),
        ({"prefix_lens": [3]}, "must be as many"),
        ({"prefix_lens": [3, -1]}, "negative prefix"),
        ({"prefix_lens": [3, 2**31 + 5]}, "passes pipeline.context_length"),
        ({"token_ids": [[1], []]}, "has no row"),
        ({"token_ids": [[1], [61]]}, "outside the vocabulary of 61"),
        ({"token_ids": [[1], [1] * 7]}, "takes at most 6 rows per request, a request has 7"),
    ],
)
def test_malformed_batches_are_refused_with_the_number_that_is_wrong(options, message):
    """Field report 39: a length that a 32-bit buffer would wrap silently never reaches one."""
    good = {"slots": [0, 1], "prefix_lens": [3, 4], "token_ids": [[1], [2]]}
    with pytest.raises(BatchError, match=message):
        make_batch(DIMS, Mode.TARGET_VERIFY, **(good | options))


def test_lengths_of_any_integer_type_arrive_as_int32_values():
    """Field report 39: 64-bit lengths are converted, never reinterpreted."""
    from dspark_factory.buffers.staging import write_padded

    mirror = np.full(4, 9, dtype=np.int32)
    write_padded(mirror, np.array([5, 9], dtype=np.int64), 4, 0)
    assert mirror.tolist() == [5, 9, 0, 0]


def test_a_ragged_batch_counts_its_rows():
    """Field report 28: lengths 6, 1, 3 are ten rows."""
    batch = verify([0, 0, 0], [[1] * 6, [1], [1] * 3])
    assert batch.key.form is LayoutForm.RAGGED
    assert batch.key.rows == 10


def test_splitting_keeps_every_request_once_and_in_order():
    batch = verify([1, 2, 3], [[1] * 6, [2], [3] * 3])
    parts = split(batch, 2)
    assert [part.slots for part in parts] == [(0, 1), (2,)]
    assert [part.key.rows for part in parts] == [7, 3]
    assert [tokens for part in parts for tokens in part.token_ids] == list(batch.token_ids)
