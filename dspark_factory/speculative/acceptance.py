"""Acceptance of a chain of drafts: greedy, and exact rejection sampling. Pure tensor functions, no host sync.

All take the *dense* form: ``width`` rows per request, the anchor first, drafts behind it. Row ``o`` holds the
target's prediction of what follows it, so draft ``o + 1`` is judged by row ``o``. A request's ``row_lens`` says how
many of its rows count; the first row behind the accepted drafts yields the bonus token, so a request with rows
commits at least one token.
"""

from __future__ import annotations

import torch
from torch import Tensor


def accept_greedy(target_tokens: Tensor, token_ids: Tensor, row_lens: Tensor) -> Tensor:
    """Committed tokens per request, ``[requests]``: leading drafts that equal the target's choice, and the bonus.

    Args:
        target_tokens: ``[requests, width]`` the target's choice after each row.
        token_ids: ``[requests, width]`` the rows' own tokens.
        row_lens: ``[requests]`` rows that count; 0 for padding requests, which commit nothing.
    """
    agrees = target_tokens[:, :-1] == token_ids[:, 1:]
    return _commit(agrees, row_lens)


def accept_sampled(
    target_probs: Tensor,
    token_ids: Tensor,
    row_lens: Tensor,
    *,
    uniforms: Tensor,
    draft_probs: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Exact rejection sampling: the committed tokens are distributed as if the target had sampled them one by one.

    Draft x is accepted with probability ``min(1, p(x) / q(x))``; the first rejected one is replaced by a sample of
    ``max(p − q, 0)`` renormalised, and when all are accepted the bonus is a sample of ``p`` (Leviathan et al. 2023).

    Args:
        target_probs: ``[requests, width, vocabulary]`` fp32.
        token_ids: ``[requests, width]`` anchor and drafts.
        row_lens: ``[requests]`` rows that count.
        uniforms: ``[requests, width]`` independent numbers in [0, 1): the first for the bonus, then one per draft.
        draft_probs: ``[requests, width − 1, vocabulary]`` the distribution each draft was sampled from; ``None`` for
            drafts that were not sampled (all mass on the draft).

    Returns:
        Committed tokens per request ``[requests]``, and ``[requests, width]`` tokens of which that many count.
    """
    width = token_ids.shape[1]
    drafts = token_ids[:, 1:].long()
    p = target_probs[:, :-1].gather(2, drafts.unsqueeze(2)).squeeze(2)
    q = torch.ones_like(p) if draft_probs is None else draft_probs.gather(2, drafts.unsqueeze(2)).squeeze(2)
    committed = _commit(uniforms[:, 1:] * q < p, row_lens)
    last = (committed - 1).clamp(min=0)
    bonus_probs = target_probs.gather(1, _row(last, target_probs)).squeeze(1)
    if width > 1:
        rejected = committed < row_lens
        at = last.clamp(max=width - 2)
        if draft_probs is None:
            removed = torch.zeros_like(bonus_probs).scatter_(1, drafts.gather(1, at.unsqueeze(1)), 1.0)
        else:
            removed = draft_probs.gather(1, _row(at, draft_probs)).squeeze(1)
        residual = (bonus_probs - removed).clamp(min=0)
        bonus_probs = torch.where(rejected.unsqueeze(1), residual, bonus_probs)
    bonus = sample(bonus_probs, uniforms[:, 0])
    shifted = torch.cat([drafts, drafts[:, :1] if width > 1 else bonus.unsqueeze(1)], dim=1)[:, :width]
    return committed, shifted.scatter(1, last.unsqueeze(1), bonus.unsqueeze(1))


def sample(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Inverse-transform samples of unnormalised ``weights [requests, vocabulary]``, ``[requests]`` int64.

    A token of weight zero is never drawn, not even at a number of exactly zero or by rounding at the end.
    """
    cumulative = weights.double().cumsum(-1)
    total = cumulative[:, -1:]
    threshold = (uniforms.double().unsqueeze(1) * total).clamp(
        max=torch.nextafter(total, torch.zeros_like(total))
    )
    return torch.searchsorted(cumulative, threshold, right=True).squeeze(1).clamp(max=weights.shape[1] - 1)


def softmax_at(logits: Tensor, temperatures: Tensor) -> Tensor:
    """fp32 probabilities at each row's temperature; temperature 0 puts all mass on the best token.

    Args:
        logits: ``[..., vocabulary]``.
        temperatures: ``[...]``.
    """
    heat = temperatures.unsqueeze(-1)
    warm = torch.softmax(logits.float() / heat.clamp(min=1e-6), dim=-1)
    greedy = torch.zeros_like(warm).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
    return torch.where(heat > 0, warm, greedy)


def _commit(accepted: Tensor, row_lens: Tensor) -> Tensor:
    """Leading accepted drafts and the bonus, never past the rows that count."""
    offsets = torch.arange(1, accepted.shape[1] + 1, device=accepted.device)
    within = accepted & (offsets < row_lens.unsqueeze(1))
    return within.long().cumprod(1).sum(1) + (row_lens > 0).long()


def _row(index: Tensor, like: Tensor) -> Tensor:
    return index.view(-1, 1, 1).expand(-1, 1, like.shape[2])
