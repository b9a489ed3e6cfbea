"""NCL: normalised contrastive learning (Park et al., EMNLP 2022), on CLIP4Clip's heads over cached frame features.

The score of a pair is the cosine of a caption's and a clip's vector over a temperature that is learnt (eqs. 1 and 2). A
clip's vector is the average of its tokens, or of what a sequence transformer makes of them. The loss is contrastive in
both directions (eq. 4), of scores to which Sinkhorn's biases are added (eqs. 6 to 12), so that in the batch every clip
and every caption is retrieved equally often. At test time biases come from train queries: `train evaluate --normalise`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from train.batches import Batch, all_clips, all_texts
from train.config import Data
from train.data import Corpus
from train.encoders import Layers, scale_of
from train.losses import mean_tokens, nce, product, wide
from train.normalisation import error, ncl
from train.processes import gathered
from train.settings import Ncl
from train.text import Encoder, Pieces, Sentences


class Model(nn.Module):
    """Text encoder, and CLIP4Clip's head over projected frame features."""

    def __init__(self, settings: Ncl, data: Data, in_dim: int, text: Encoder) -> None:
        super().__init__()
        s = settings
        self.data, self.text = data, text
        self.project = nn.Linear(in_dim, text.dim)
        if in_dim == text.dim:  # CLIP's frames and captions meet already
            nn.init.eye_(self.project.weight)
            nn.init.zeros_(self.project.bias)
        layers = s.sequence_layers if s.head == "transformer" else 0
        self.sequence = Layers(text.dim, layers, data.max_video_tokens, s.dropout) if layers else None
        self.scale = nn.Parameter(torch.tensor(1 / s.gamma).log())

    def video(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return (B, L, d) frames where captions are; the sequence transformer adds to them, as in CLIP4Clip."""
        frames: Tensor = self.project(x)
        return frames if self.sequence is None else frames + self.sequence(frames, mask)

    def videos(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return (B, d) vectors of length 1."""
        return nn.functional.normalize(wide(mean_tokens(self.video(x, mask), mask)), dim=1)

    def texts(self, sentences: Sentences) -> Tensor:
        """Return (B, d) vectors of length 1."""
        return nn.functional.normalize(wide(self.text.whole(self.text(sentences), sentences.mask)), dim=1)


def losses(model: Model, batch: Batch, settings: Ncl, generator: torch.Generator) -> dict[str, Tensor]:  # noqa: ARG001
    """Return the loss (eq. 4), with biases or without, and how far the batch is from even retrieval (eq. 5)."""
    texts, videos = model.texts(batch.text), model.videos(batch.video, batch.video_mask[batch.own])
    scores = product(gathered(texts), gathered(videos).T) * scale_of(model.scale)
    own = torch.arange(len(scores), device=scores.device)
    if settings.normalise_training:
        loss = ncl(scores, own, settings.iterations, settings.detach)
    else:
        loss = nce(scores, own).mean() + nce(scores.T, own).mean()
    uneven = torch.tensor(error(scores.detach())[0], device=scores.device)
    return {"loss": loss, "error": uneven}


def alike(model: Model, tokens: Tensor, texts: Tensor, settings: Ncl) -> Tensor:  # noqa: ARG001
    """Return (tokens, texts) how like a video's single tokens (T, d) are to texts: cosines over the temperature."""
    return nn.functional.normalize(wide(tokens), dim=1) @ texts.T * scale_of(model.scale)


def scales(model: Model, settings: Ncl) -> dict[str, float]:  # noqa: ARG001
    """Return what cosines are multiplied by in the levels of score that are cosines."""
    return {"similarity": float(scale_of(model.scale.detach()))}


@torch.inference_mode()
def scores(model: Model, corpus: Corpus, pieces: Pieces, settings: Ncl, rerank: int = 0) -> dict[str, Tensor]:  # noqa: ARG001
    """Return the score matrix (captions, clips), cosines over the temperature."""
    model.eval()
    videos = torch.zeros(len(corpus.clips), model.text.dim, device=corpus.device)
    for some, x, mask in all_clips(corpus, model.data):
        videos[some] = model.videos(x, mask)
    texts = torch.cat([model.texts(sentences) for _, sentences in all_texts(pieces)])
    return {"similarity": texts @ videos.T * scale_of(model.scale)}
