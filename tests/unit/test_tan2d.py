"""2D-TAN as a whole: shapes, the dense map's scores, edge cases, and that it learns."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks.ground_peer import Dense
from pipeline.errors import BadSetting
from train import methods
from train.batches import Batch
from train.candidates import cells
from train.config import Data
from train.methods.tan2d import Model, losses, predict
from train.moments import best_constant, iou, nms, recalls
from train.settings import Tan2d
from train.text import Encoder, Sentences

DIM = 12
SMALL = Tan2d(clips=16, kernel=3, layers=2, hidden=8)


def batch_of(video: Tensor, spans: Tensor, said: Tensor, mask: Tensor | None = None) -> Batch:
    """Return a batch whose captions are of one token: their vector (K, d)."""
    mask = torch.ones(video.shape[:2], dtype=torch.bool) if mask is None else mask
    one = torch.ones(len(said), 1)
    text = Sentences(one.long(), one, one.bool(), said[:, None])
    own = torch.arange(len(video))
    return Batch(own, own, video, text, mask, text, spans=spans)


def model_of(settings: Tan2d, dim: int = DIM, text: int = 5) -> Model:
    torch.manual_seed(0)
    data = Data(features="f.h5")  # type: ignore[arg-type]
    return Model(settings, data, dim, Encoder(nn.Identity(), text, "mean"))


def random_batch(k: int = 3, bins: int = 32, dtype: torch.dtype = torch.float64) -> Batch:
    draw = torch.Generator().manual_seed(1)
    spans = torch.tensor([[0.1, 0.4], [0.5, 1.0], [0.0, 0.9]], dtype=dtype)[:k]
    video, said = (torch.randn(*shape, generator=draw, dtype=dtype) for shape in ((k, bins, DIM), (k, 5)))
    return batch_of(video, spans, said)


def dense_of(model: Model, s: Tan2d, dim: int = DIM, text: int = 5) -> Dense:
    """Return the peer with the same weights."""
    peer = Dense((dim, text, s.hidden), s.clips, s.kernel, s.layers).double()
    weights = {"frames": model.frames, "said": model.said, "seen": model.seen, "read": model.read}
    with torch.no_grad():
        for name, layer in weights.items():
            own = getattr(peer, name)
            own.weight.copy_(layer.weight.view_as(own.weight))
            own.bias.copy_(layer.bias)
        for conv, weight, bias in zip(peer.convs, model.convs.weights, model.convs.biases, strict=True):
            conv.weight.copy_(weight.unflatten(0, (s.kernel, s.kernel)).permute(3, 2, 0, 1))
            conv.bias.copy_(bias)
    return peer


@pytest.mark.parametrize("s", [SMALL, Tan2d(clips=64, kernel=5, layers=2, hidden=4)])
def test_scores_loss_and_gradients_are_those_of_the_dense_map(s: Tan2d) -> None:
    model, batch = model_of(s).double(), random_batch(bins=64)
    peer = dense_of(model, s)
    said = batch.text.features
    assert said is not None
    assert batch.spans is not None
    with torch.no_grad():
        (a, b), dense = cells(s.clips).T, peer(batch.video, said[:, 0])
    found = predict(model, batch, s)[1]
    torch.testing.assert_close(found, dense[:, a, b], rtol=0, atol=1e-6)  # its masks are in float32
    assert float(found.std()) > 1e-2
    ours = losses(model, batch, s, torch.Generator())["loss"]
    theirs = peer.loss(batch.video, said[:, 0], batch.spans, (s.t_min, s.t_max))
    ours.backward()
    theirs.backward()
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-7)  # spans of candidates are in float32
    for own, other in ((model.frames, peer.frames), (model.said, peer.said)):
        torch.testing.assert_close(own.weight.grad, other.weight.grad.view_as(own.weight), rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("s", [SMALL, dataclasses.replace(SMALL, map="conv")])
def test_loss_is_the_formula(s: Tan2d) -> None:
    model, batch = model_of(s).double(), random_batch()
    spans, logits = predict(model, batch, s)
    assert spans.shape == (3, 136, 2)
    assert batch.spans is not None
    total = 0.0
    for query in range(3):
        for span, logit in zip(spans[query].double(), logits[query], strict=True):
            y = min(max((float(iou(span, batch.spans[query])) - 0.5) / 0.5, 0), 1)
            p = float(logit.sigmoid())
            total -= y * float(torch.log(torch.tensor(p))) + (1 - y) * float(torch.log(torch.tensor(1 - p)))
    found = losses(model, batch, s, torch.Generator())["loss"]
    assert float(found.detach()) == pytest.approx(total / (3 * 136), abs=1e-6)
    found.backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


def test_padding_changes_nothing() -> None:
    model, batch = model_of(SMALL).double(), random_batch(k=1, bins=20)
    padded = torch.cat([batch.video, torch.full((1, 9, DIM), 7.0, dtype=torch.float64)], dim=1)
    mask = torch.arange(29)[None] < 20
    longer = dataclasses.replace(batch, video=padded, video_mask=mask)
    torch.testing.assert_close(predict(model, longer, SMALL)[1], predict(model, batch, SMALL)[1])


def test_a_share_of_the_batch_has_its_own_masks_and_spans() -> None:
    model, batch = model_of(SMALL).double(), random_batch()
    said = batch.text.features
    assert said is not None
    whole = losses(model, batch, SMALL, torch.Generator())["loss"]
    parts = []
    for rows in (torch.tensor([0]), torch.tensor([1, 2])):
        text = batch_of(batch.video[rows], torch.empty(0), said[rows, 0]).text
        share = dataclasses.replace(batch, own=rows, video=batch.video[rows], text=text)
        parts.append(len(rows) * losses(model, share, SMALL, torch.Generator())["loss"])
    torch.testing.assert_close(sum(parts) / 3, whole)


def test_a_video_without_tokens_has_a_finite_loss() -> None:
    model, batch = model_of(SMALL).double(), random_batch(k=1)
    empty = dataclasses.replace(batch, video_mask=torch.zeros_like(batch.video_mask))
    loss = losses(model, empty, SMALL, torch.Generator())["loss"]
    loss.backward()
    assert bool(loss.isfinite())
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())


def test_candidates_of_each_data_sets_settings() -> None:
    sizes = {name: len(cells(n)) for name, n in (("activitynet", 64), ("charades_sta", 16), ("tacos", 128))}
    assert sizes == {"activitynet": 1104, "charades_sta": 136, "tacos": 2548}


@pytest.mark.parametrize("odd", [{"t_min": 0.7, "t_max": 0.5}, {"kernel": 4}, {"clips": 0}])
def test_settings_that_cannot_be(odd: dict[str, Any]) -> None:
    with pytest.raises(BadSetting):
        model_of(dataclasses.replace(SMALL, **odd))


def planted(k: int, seed: int) -> Batch:
    """Two of six concepts in noise, each in a span of its own; a caption names one of them."""
    draw = torch.Generator().manual_seed(seed)
    concepts = torch.randn(6, DIM, generator=torch.Generator().manual_seed(99))
    video = 0.3 * torch.randn(k, 32, DIM, generator=draw)
    asked, spans = [], []
    for one in video:
        first, second = torch.randperm(6, generator=draw)[:2].tolist()
        border = int(torch.randint(8, 25, (1,), generator=draw))
        both = []
        for concept, (low, high) in ((first, (0, border)), (second, (border, 32))):
            begin, end = (low + torch.randperm(high - low + 1, generator=draw)[:2].sort().values).tolist()
            end = min(high, max(end, begin + 4))
            begin = min(begin, end - 4)
            one[begin:end] += concepts[concept]
            both.append((concept, (begin / 32, end / 32)))
        concept, span = both[int(torch.randint(2, (1,), generator=draw))]
        asked.append(concept)
        spans.append(span)
    said = torch.eye(6)[asked]
    return batch_of(video, torch.tensor(spans), said)


@pytest.mark.parametrize("how", ["pool", "conv"])
def test_it_learns_where_a_sentence_is(how: Any) -> None:
    s = Tan2d(clips=8, kernel=3, layers=2, hidden=32, map=how)
    model, test = model_of(s, text=6), planted(200, seed=1)
    assert test.spans is not None
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)

    def hits() -> float:
        spans, _ = nms(*predict(model, test, s), s.nms, 5)
        assert test.spans is not None
        return recalls(spans, test.spans, (1,), (0.5,)).recalls[1, 0.5]

    untrained, training = hits(), planted(1000, seed=2)
    assert training.spans is not None
    constant = best_constant(training.spans).expand(200, 1, 2)
    blind = recalls(constant, test.spans, (1,), (0.5,)).recalls[1, 0.5]
    said = training.text.features
    assert said is not None
    for step in range(160):
        rows = torch.arange(40) + 40 * (step % 25)
        batch = batch_of(training.video[rows], training.spans[rows], said[rows, 0])
        optimiser.zero_grad()
        losses(model, batch, s, torch.Generator())["loss"].backward()
        optimiser.step()
    assert 0.05 < blind < 0.4
    assert hits() > max(0.6, untrained + 0.3, blind + 0.3)


def test_the_method_is_found_by_its_name() -> None:
    assert methods.get("tan2d").Model is Model
