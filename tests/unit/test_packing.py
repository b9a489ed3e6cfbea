"""Packed = padded = sorted: what a sequence becomes depends on nothing but its own tokens."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from pipeline.store import Features
from tests.unit.corpora import make
from train import data, text
from train.encoders import Block, Fusion, Layers
from train.packing import Packing, by_length

SIZES = (5, 1, 3, 0, 2, 5, 4, 1, 2)
D = 128


@pytest.fixture
def padded() -> tuple[Tensor, Tensor]:
    """Nine sequences of 0 to 5 tokens, with noise for padding."""
    x = torch.randn(len(SIZES), 6, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return x, torch.arange(6) < torch.tensor(SIZES)[:, None]


def block(seed: int = 0) -> Block:
    torch.manual_seed(seed)
    return Block(D).double()


def by_hand(layer: Block, x: Tensor) -> Tensor:
    """One sequence (n, D) through a layer, a head at a time."""
    n, d = x.shape
    qkv = layer.qkv(layer.before_attention(x)).view(n, 3, layer.heads, d // layer.heads)
    heads = []
    for h in range(layer.heads):
        q, k, v = (qkv[:, i, h] for i in range(3))
        heads.append((q @ k.T / (d // layer.heads) ** 0.5).softmax(1) @ v)
    x = x + layer.out(torch.cat(heads, dim=1))
    out: Tensor = x + layer.mlp(layer.before_mlp(x))
    return out


@pytest.mark.parametrize("groups", [1, 2, 4, 9])
def test_a_layer_is_that_of_each_sequence_alone(padded: tuple[Tensor, Tensor], groups: int) -> None:
    x, mask = padded
    layer, packing = block(), Packing.of(mask, groups)
    out = packing.unpack(layer(packing.pack(x), packing))
    assert packing.lengths == SIZES
    assert packing.starts.tolist() == [0, 5, 6, 9, 9, 11, 16, 20, 21, 23]
    for row, size in enumerate(SIZES):
        assert not out[row, size:].any()
        if size:
            torch.testing.assert_close(out[row, :size], by_hand(layer, x[row, :size]), rtol=1e-10, atol=1e-10)


def test_gradients_are_those_of_the_padded_layer(padded: tuple[Tensor, Tensor]) -> None:
    x, mask = padded
    mask[3, 0] = True  # attention to nothing has no gradient to compare
    layer, wanted = block(), torch.randn(x.shape, dtype=torch.float64)
    found = []
    for way in ("packed", "padded"):
        leaf = x.clone().requires_grad_()
        if way == "packed":
            packing = Packing.of(mask)
            out = packing.unpack(layer(packing.pack(leaf), packing))
        else:
            qkv = layer.qkv(layer.before_attention(leaf)).view(*x.shape[:2], 3, layer.heads, -1)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            seen = functional.scaled_dot_product_attention(q, k, v, mask[:, None, None])
            out = leaf + layer.out(seen.transpose(1, 2).flatten(2))
            out = (out + layer.mlp(layer.before_mlp(out))) * mask[:, :, None]
        grads = torch.autograd.grad((out * wanted).sum(), [leaf, *layer.parameters()])
        found.append([out.detach(), *grads])
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-9)


def test_a_mask_may_have_holes_and_may_be_empty() -> None:
    x = torch.randn(2, 4, D, dtype=torch.float64)
    layer = block()
    holes = torch.tensor([[True, False, True, True], [False, True, False, False]])
    packing = Packing.of(holes)
    out = packing.unpack(layer(packing.pack(x), packing))
    torch.testing.assert_close(out[0, [0, 2, 3]], by_hand(layer, x[0, [0, 2, 3]]))
    nothing = Packing.of(torch.zeros(2, 4, dtype=torch.bool))
    assert not nothing.unpack(layer(nothing.pack(x), nothing)).any()


def test_groups_are_of_like_length() -> None:
    assert by_length([4, 4, 4]) == [[0, 1, 2]]
    assert by_length([0, 0]) == []
    found = by_length(SIZES, 3)
    assert sorted(row for group in found for row in group) == [0, 1, 2, 4, 5, 6, 7, 8]
    assert [sorted({SIZES[row] for row in group}) for group in found] == [[1, 2], [2, 3, 4], [5]]


def test_padding_moves_no_video_token(padded: tuple[Tensor, Tensor]) -> None:
    x, mask = padded
    torch.manual_seed(0)
    layers = Layers(D, 2, most=10).double()
    out = layers(x, mask)
    wide = layers(functional.pad(x, (0, 0, 0, 4), value=9.0), functional.pad(mask, (0, 4)))
    torch.testing.assert_close(out, wide[:, :6])
    torch.testing.assert_close(layers(x[2:3, :3], mask[2:3, :3])[0], out[2, :3])


def test_a_pair_is_fused_alike_whatever_it_is_fused_beside(padded: tuple[Tensor, Tensor]) -> None:
    """A caption's length, or the longest one's, is not what decides where its video's tokens are."""
    video, video_mask = padded
    said = torch.randn(4, 7, D, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    said_mask = torch.arange(7) < torch.tensor([2, 7, 3, 5])[:, None]
    torch.manual_seed(0)
    fusion = Fusion(D, 2, (7, 6)).double()
    pairs = torch.tensor([[t, v] for t in range(4) for v in (0, 2, 3, 5)])
    together = fusion((said, said_mask), (video, video_mask), pairs)
    for number, (t, v) in enumerate(pairs.tolist()):
        text_size, size = int(said_mask[t].sum()), max(1, SIZES[v])
        alone = fusion(
            (said[t : t + 1, :text_size], said_mask[t : t + 1, :text_size]),
            (video[v : v + 1, :size], video_mask[v : v + 1, :size]),
            torch.tensor([[0, 0]]),
        )
        torch.testing.assert_close(together[number : number + 1], alone, rtol=1e-9, atol=1e-9)
    # What a pair is made of: its caption's tokens with type and place, then its video's.
    x = torch.cat([said[2, :3], video[5, :5]])
    kinds, places = [0] * 3 + [1] * 5, [0, 1, 2, 7, 8, 9, 10, 11]
    x = x + fusion.types.weight[kinds] + fusion.positions.weight[places]
    for layer in fusion.stack.blocks:
        assert isinstance(layer, Block)
        x = by_hand(layer, x)
    at = pairs.tolist().index([2, 5])
    torch.testing.assert_close(together[at], fusion.read(fusion.stack.last(x)[0])[0])


def test_captions_of_like_length_go_through_the_text_encoder_together(tmp_path: Path) -> None:
    corpus = data.load(Features.open(make(tmp_path / "f.h5")), "s/train")
    words = text.load("tiny", corpus.texts)
    found = text.pieces(words.tokenizer, corpus.texts, corpus.words, 30)
    encoder = words.encoder.eval()
    batch = found.batch(torch.arange(20))
    assert len(set(batch.mask.sum(1).tolist())) > 1
    out = encoder(batch)
    for caption in range(20):
        size = int(batch.mask[caption].sum())
        torch.testing.assert_close(out[caption, :size], encoder(found.batch(torch.tensor([caption])))[0])
        assert not out[caption, size:].any()


@pytest.mark.gpu
def test_the_kernel_for_packed_sequences_is_the_padded_one(padded: tuple[Tensor, Tensor]) -> None:
    x, mask = (one.cuda() for one in padded)
    layer = block().float().cuda()
    packing = Packing.of(mask)
    with torch.autocast("cuda", torch.bfloat16):
        packed = layer(packing.pack(x.float()), packing)
    whole = layer(packing.pack(x.float()), packing)
    torch.testing.assert_close(packed.float(), whole, rtol=0.05, atol=0.05)
