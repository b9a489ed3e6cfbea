"""TACo's losses as pure functions (Yang et al., ICCV 2021), in the paper's symbols.

A score matrix is (texts, videos); `positive[i]` is the column of text i's own video. Sums over the batch are means
here, a constant factor. Scores are compared in float32 or more.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional


def wide(scores: Tensor) -> Tensor:
    """Return scores in float32, or as they are if they are wider."""
    return scores if scores.dtype == torch.float64 else scores.float()


def product(x: Float[Tensor, "*a n d"], y: Float[Tensor, "*b d m"]) -> Float[Tensor, "*c n m"]:
    """Return x @ y in float32 or more, under autocast too: bfloat16 has eight bits for a logit of up to 1 / tau."""
    with torch.autocast(x.device.type, enabled=False):
        return wide(x) @ wide(y)


def nce(
    scores: Float[Tensor, "queries items"],
    positive: Int[Tensor, " queries"],
    rivals: Bool[Tensor, "queries items"] | None = None,
) -> Float[Tensor, " queries"]:
    """Return -log softmax of each query's positive item (eq. 2); `rivals` are the items it competes with, if not all.

    >>> nce(torch.tensor([[2.0, 0.0]]), torch.tensor([0])).round(decimals=4).tolist()
    [0.1269]
    """
    scores = wide(scores)
    if rivals is not None:
        own = functional.one_hot(positive, scores.shape[1]).bool()
        scores = scores.masked_fill(~(rivals | own), -torch.inf)
    return functional.cross_entropy(scores, positive, reduction="none")


def mean_tokens(x: Float[Tensor, "batch tokens dim"], mask: Bool[Tensor, "batch tokens"]) -> Float[Tensor, "batch dim"]:
    """Return the average of the tokens in `mask` (x-bar of eq. 3); 0 where there is none."""
    total = (x * mask[:, :, None]).sum(1)
    return total / mask.sum(1, keepdim=True).clamp(min=1)


def word_scores(
    words: Float[Tensor, "words dim"],
    video: Float[Tensor, "videos tokens dim"],
    mask: Bool[Tensor, "videos tokens"],
    budget: int = 1 << 26,
) -> Float[Tensor, "words videos"]:
    """Return s(x_j, y^p) of eq. 4: each word with the video token that is most like it, for every video.

    `budget`: numbers of words x videos x tokens that are held at once.
    """
    if not len(words):
        return words.new_zeros(0, len(video))
    hidden = torch.where(mask, 0.0, -torch.inf)
    size = max(1, budget // max(1, mask.numel()))
    flat = video.flatten(0, 1).T
    parts = [product(some, flat).view(len(some), *mask.shape) + hidden for some in words.split(size)]
    return torch.cat([part.amax(2) for part in parts])


def token_nce(
    scores: Float[Tensor, "words videos"], positive: Int[Tensor, " words"], weights: Float[Tensor, " words"], texts: int
) -> Float[Tensor, ""]:
    """Return L2 (eq. 4), each term by the word's weight: the mean over `texts` captions of their words' sum.

    `positive`: the column of the video of each word's caption. A caption without words of interest adds 0.
    """
    if not len(scores):
        return wide(scores).sum()
    return (weights * nce(scores, positive)).sum() / texts


def cascade_scores(
    sentence: Float[Tensor, "texts videos"],
    words: Float[Tensor, "words videos"],
    owner: Int[Tensor, " words"],
    weights: Float[Tensor, " words"],
    aggregate: str = "mean",
) -> Float[Tensor, "texts videos"]:
    """Return the scores by which the cascade picks its negatives (3.3).

    `owner`: the caption of each word, or of each piece of a word. `aggregate` "sum" adds all of them, as the paper
    writes; "mean" is their mean by idf, so that captions with many words, or words of many pieces, are not everybody's
    hardest negatives.
    """
    total = weights.new_zeros(len(sentence)).index_add(0, owner, weights)
    factor = torch.ones_like(weights) if aggregate == "sum" else weights / total[owner]
    return wide(sentence).index_add(0, owner, wide(words) * factor[:, None])


def hardest(
    scores: Float[Tensor, "queries items"], positive: Int[Tensor, " queries"], k: int
) -> Int[Tensor, "queries picks"]:
    """Return each query's positive item, then the k others with the highest scores, or all if there are fewer."""
    others = wide(scores).scatter(1, positive[:, None], -torch.inf)
    return torch.cat([positive[:, None], others.topk(min(k, scores.shape[1] - 1), dim=1).indices], dim=1)


def at_random(
    scores: Float[Tensor, "queries items"], positive: Int[Tensor, " queries"], k: int, generator: torch.Generator
) -> Int[Tensor, "queries picks"]:
    """Return each query's positive item, then k others drawn without repetition (Table 3's control)."""
    drawn = torch.rand(scores.shape, generator=generator, device=generator.device).to(scores.device)
    return hardest(drawn, positive, k)


def among_best(scores: Float[Tensor, "queries items"], k: int) -> Bool[Tensor, "queries items"]:
    """Return which items are among the k with each query's highest scores."""
    best = scores.topk(min(k, scores.shape[1]), dim=1).indices
    return torch.zeros_like(scores, dtype=torch.bool).scatter(1, best, True)


def unique_pairs(
    videos: Int[Tensor, "own picks"], texts: Int[Tensor, "own picks2"], own: Int[Tensor, " own"], width: int
) -> tuple[Int[Tensor, "pairs 2"], Int[Tensor, "own picks"], Int[Tensor, "own picks2"]]:
    """Return the different (text, video) pairs among the picks, and where each pick's pair is among them.

    `videos[i]`: picks of text `own[i]`. `texts[i]`: picks of video `own[i]`. `width`: videos there are. Positives stand
    in both lists and many hard negatives too, so about six in ten are left.
    """
    rows = own[:, None] * width + videos
    columns = texts * width + own[:, None]
    keys, place = torch.cat([rows.flatten(), columns.flatten()]).unique(return_inverse=True)
    pairs = torch.stack([keys // width, keys % width], dim=1)
    return pairs, place[: rows.numel()].view(rows.shape), place[rows.numel() :].view(columns.shape)


def fusion_nce(logits: Float[Tensor, " pairs"], picks: Int[Tensor, "queries picks"]) -> Float[Tensor, ""]:
    """Return L3 (eq. 5) of one direction: the first of each query's picks against the others."""
    grouped = wide(logits)[picks]
    return -grouped.log_softmax(1)[:, 0].mean()
