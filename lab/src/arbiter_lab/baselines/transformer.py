"""A transformer over quotes; a token holds strike, volatility, bid-ask spread and maturity.

Full attention is quadratic in the up to 10,000 quotes of a listed chain. Quotes are therefore
connected through a few learned tokens, the induced attention of Lee et al. (Set Transformer, 2019):
in each round these attend to the quotes and to each other, and the quotes attend to them. A query
attends to the quotes of its own maturity and to the learned tokens. The order of quotes does not
matter.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn

from arbiter_lab.baselines.readout import Memory, Readout, bound_log_volatility
from arbiter_lab.differentiable.operators.prior.gaussian_process import Kriged
from arbiter_lab.differentiable.operators.prior.reference_volatility import Scaled

ATTENTION_HEADS = 4
LEARNED_TOKENS = 32  # tokens through which quotes are connected
ENCODER_ROUNDS, ANSWER_BLOCKS = 2, 2
_FREQUENCY_COUNT = 6  # of ζ and log(σ√T): lengths from 8 down by halves


class Attention(nn.Module):
    """One residual block: attention and a perceptron, both on normalised inputs.

    Args:
        width: Size of a token, a multiple of ``ATTENTION_HEADS``.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.beside, self.after = (nn.LayerNorm(width) for _ in range(3))
        self.query = nn.Linear(width, width)
        self.pair = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor, others: Tensor, there: Tensor | None = None) -> Tensor:
        """Tokens ``(…, n, d)`` after attending to others ``(…, m, d)`` where ``there (…, m)``."""
        split = (ATTENTION_HEADS, x.shape[-1] // ATTENTION_HEADS)
        q = self.query(self.before(x)).unflatten(-1, split).transpose(-2, -3)  # (…, h, n, e)
        pair = self.pair(self.beside(others)).unflatten(-1, (2, *split))
        k, v = (part.transpose(-2, -3) for part in pair.unbind(-3))  # (…, h, m, e)
        # written out: fused kernels add up in an order of chance, and legs would not be one run
        score = q @ k.transpose(-1, -2) / math.sqrt(split[1])
        if there is not None:
            score = score.masked_fill(~there[..., None, None, :], -torch.inf)
        seen = (torch.softmax(score, -1) @ v).transpose(-2, -3).flatten(-2)
        x = x + self.out(seen)
        mixed: Tensor = self.down(nn.functional.silu(self.up(self.after(x))))
        return x + mixed


class Transformer(Readout):
    """Quotes connected through learned tokens; queries attend to both.

    Args:
        width: Size of all tokens, a multiple of ``ATTENTION_HEADS``.
    """

    waves: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        waves = (0.25 * math.pi) * 2.0 ** torch.arange(_FREQUENCY_COUNT)
        self.register_buffer("waves", waves, persistent=False)
        self.quote = nn.Linear(2 * (1 + 2 * _FREQUENCY_COUNT) + 2, width)
        self.query = nn.Linear(2 * (1 + 2 * _FREQUENCY_COUNT), width)
        self.learned = nn.Parameter(torch.randn(LEARNED_TOKENS, width))
        self.gather, self.among, self.spread = (
            nn.ModuleList(Attention(width) for _ in range(ENCODER_ROUNDS)) for _ in range(3)
        )
        self.answer = nn.ModuleList(Attention(width) for _ in range(ANSWER_BLOCKS))
        self.leave = nn.Linear(width, 1)
        nn.init.zeros_(self.leave.weight)
        nn.init.zeros_(self.leave.bias)

    def encode(self, chain: Scaled, guess: Kriged | None = None) -> Memory:
        """Return tokens of quotes, learned tokens, the mask of quotes, and ``log σ√T``."""
        own = torch.stack([3.0 * chain.u, 0.4 * (chain.noise + 5.0)], -1)
        place = self._encode_positions(chain.zeta, chain.total)
        quotes = self.quote(torch.cat([place, own], -1)).flatten(1, 2)  # (B, LS, d)
        there = chain.quoted.flatten(1)
        tokens = self.learned.expand(len(quotes), *self.learned.shape)
        for parts in zip(self.gather, self.among, self.spread, strict=True):
            gather, among, spread = (cast(Attention, part) for part in parts)
            tokens = gather(tokens, quotes, there)
            tokens = among(tokens, tokens)
            quotes = spread(quotes, tokens)
        return quotes.unflatten(1, chain.quoted.shape[1:]), tokens, chain.quoted, chain.total

    def query_volatility(self, memory: Memory, zeta: Tensor) -> Tensor:
        """Return ``(B, L, P)`` log-volatility over reference at ζ.

        A query attends to the quotes of its maturity and to the learned tokens.
        """
        quotes, tokens, quoted, total = memory
        shared = tokens[:, None].expand(-1, quotes.shape[1], -1, -1)
        others = torch.cat([quotes, shared], 2)  # (B, L, S + M, d)
        there = torch.cat([quoted, quoted.new_ones(*shared.shape[:3])], 2)
        x = self.query(self._encode_positions(zeta, total))  # (B, L, P, d)
        for part in self.answer:
            x = part(x, others, there)
        return bound_log_volatility(self.leave(x)[..., 0])

    def select_maturities(self, memory: Memory, rows: Tensor) -> Memory:
        """Return the quotes of some maturities and all learned tokens."""
        quotes, tokens, quoted, total = memory
        return quotes[:, rows], tokens, quoted[:, rows], total[:, rows]

    def _encode_positions(self, zeta: Tensor, total: Tensor) -> Tensor:
        """Return ``(B, L, P, ·)`` strikes and ``log σ√T`` with their Fourier features."""
        clock = (total + 2.5)[..., None].expand_as(zeta)
        both = torch.stack([zeta, clock], -1)[..., None]  # (B, L, P, 2, 1)
        angle = both * self.waves
        return torch.cat([both, torch.sin(angle), torch.cos(angle)], -1).flatten(-2)
