"""2D-TAN: a map of candidate moments, convolved, for the moment that a sentence tells of (Zhang et al., AAAI 2020).

    P = sigmoid(w . conv(... conv(norm(w_s f_s * w_v F))))                         (3.3)
    min  mean over candidates of BCE(P, scaled IoU with the truth)                 (eqs. 6, 7)

Clips as in the original: rows of length 1, a convolution of kernel 1 (a linear layer) to `hidden` numbers, ReLU, then
averages over N equal shares of the video. F is their maximum over each candidate, or stacked convolutions. Sentence and
map each go through one more linear layer, are multiplied and brought to length 1.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pipeline.errors import BadSetting
from train.batches import Batch
from train.candidates import ConvMap, MapConvs, averages, max_map, spans
from train.config import Data
from train.losses import wide
from train.moments import iou, targets
from train.settings import Tan2d
from train.text import Encoder


class Model(nn.Module):
    """Clips and a sentence to a score for each candidate moment."""

    def __init__(self, settings: Tan2d, data: Data, in_dim: int, text: Encoder) -> None:
        """Raises BadSetting."""
        super().__init__()
        s = settings
        if not 0 <= s.t_min < s.t_max:
            raise BadSetting(
                f"--t-min {s.t_min} and --t-max {s.t_max}: expected 0 or more, and the first below the other"
            )
        self.data, self.text, self.clips = data, text, s.clips
        self.frames = nn.Linear(in_dim, s.hidden)
        self.map = ConvMap(s.clips, s.hidden) if s.map == "conv" else None
        self.seen, self.said = nn.Linear(s.hidden, s.hidden), nn.Linear(text.dim, s.hidden)
        self.convs = MapConvs(s.clips, (s.kernel, s.layers, s.hidden), s.start)
        self.read = nn.Linear(s.hidden, 1)
        self.register_buffer("spans", spans(s.clips).float(), persistent=False)

    def forward(self, batch: Batch) -> Tensor:
        """Return (k, candidates) logits of this process's pairs."""
        rows = nn.functional.normalize(batch.video, dim=2)
        clips = averages(self.frames(rows).relu(), batch.video_mask[batch.own], self.clips).transpose(0, 1)
        candidates = max_map(clips) if self.map is None else self.map(clips)
        said = self.said(self.text.whole(self.text(batch.text), batch.text.mask))
        fused = nn.functional.normalize(self.seen(candidates) * said, dim=2)
        return wide(self.read(self.convs(fused))[..., 0].T)


def losses(model: Model, batch: Batch, settings: Tan2d, generator: torch.Generator) -> dict[str, Tensor]:  # noqa: ARG001
    """Return the binary cross entropy of the candidates' scores with their scaled overlaps (eqs. 6, 7), a mean."""
    logits = model(batch)
    assert batch.spans is not None
    truth = batch.spans[batch.own].to(logits)
    wanted = targets(iou(model.get_buffer("spans").to(logits), truth[:, None]), settings.t_min, settings.t_max)
    return {"loss": nn.functional.binary_cross_entropy_with_logits(logits, wanted)}


@torch.inference_mode()
def predict(model: Model, batch: Batch, settings: Tan2d) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """Return the candidates (k, M, 2) as fractions of the video, and their scores (k, M), logits, to be suppressed.

    Cells that are no candidates are left out; the official code ranks them last.
    """
    model.eval()
    logits = model(batch)
    return model.get_buffer("spans").expand(len(logits), -1, -1), logits
