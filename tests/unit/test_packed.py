"""Convolutions with packed weights give what torch's own give, and are what a network on a CPU uses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import extractors
from extractors import weights
from extractors.embed import network
from extractors.packed import Packed, pack

KINDS: list[tuple[type[nn.Conv2d | nn.Conv3d], dict[str, Any]]] = [
    (nn.Conv2d, {"kernel_size": 1}),
    (nn.Conv2d, {"kernel_size": 3, "padding": 1, "bias": False}),
    (nn.Conv2d, {"kernel_size": 3, "stride": 2, "padding": 1, "groups": 16}),
    (nn.Conv2d, {"kernel_size": (5, 3), "dilation": 2, "padding": (4, 2), "groups": 4}),
    (nn.Conv3d, {"kernel_size": 1, "bias": False}),
    (nn.Conv3d, {"kernel_size": (3, 1, 1), "padding": (1, 0, 0)}),
    (nn.Conv3d, {"kernel_size": (1, 3, 3), "stride": (1, 2, 2), "padding": (0, 1, 1)}),
    (nn.Conv3d, {"kernel_size": 3, "padding": 1, "groups": 16}),
]


def packed(module: nn.Module) -> bool:
    return isinstance(module.__dict__.get("forward"), Packed)


def inputs(kind: type[nn.Module], *sides: int) -> list[Tensor]:
    """Return an input of each size, in both layouts."""
    shapes = [(2, 16, *([4] if kind is nn.Conv3d else []), side, side + 3) for side in sides]
    layout = torch.channels_last_3d if kind is nn.Conv3d else torch.channels_last
    plain = [torch.randn(shape) for shape in shapes]
    return [*plain, *(x.contiguous(memory_format=layout) for x in plain)]


@torch.inference_mode()
@pytest.mark.parametrize(("kind", "how"), KINDS, ids=str)
def test_a_packed_convolution_is_torchs_own_for_every_size_in_turn(kind: type[nn.Conv2d], how: dict[str, Any]) -> None:
    torch.manual_seed(0)
    module = kind(16, 32, **how).eval()
    some = inputs(kind, 12, 9)
    own = [module(x) for x in some]
    pack(module)
    assert packed(module)
    first, again = ([module(x) for x in some] for _ in range(2))
    for one, other, expected in zip(first, again, own, strict=True):
        torch.testing.assert_close(one, expected, rtol=1e-5, atol=1e-5)
        assert torch.equal(one, other)  # packed anew, to the bit


@torch.inference_mode()
def test_other_types_of_numbers_take_torchs_own_way() -> None:
    module = nn.Conv2d(3, 4, 3).eval()
    x = torch.randn(1, 3, 8, 8)
    with torch.autocast("cpu", torch.bfloat16):
        half = module(x)
        pack(module)
        assert module(x).dtype == torch.bfloat16
        torch.testing.assert_close(module(x), half, rtol=0, atol=0)
    module.double()
    assert module(x.double()).dtype == torch.float64


def test_what_is_more_than_a_plain_convolution_is_left_alone() -> None:
    class Scaled(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    others = nn.Sequential(
        Scaled(3, 3, 1), nn.Conv2d(3, 3, 3, padding="same"), nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect")
    )
    pack(others)
    assert not any(packed(module) for module in others)


@pytest.mark.parametrize("name", ["resnet152", "i3d_x101", "s3d_howto100m"])
def test_no_convolution_of_a_network_takes_the_slow_way_of_one_thread(name: str) -> None:
    preset = extractors.preset(name)
    net = network(preset, weights.Found("random"))
    side = preset.chain.crop or 64
    x = torch.zeros(1, 3, *([preset.frames] if preset.frames > 1 else []), side, side)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            net(x)  # which packs
            with torch.profiler.profile() as profile:
                net(x)
    finally:
        torch.set_num_threads(threads)
    taken = {event.key for event in profile.key_averages() if "conv" in event.key}
    assert taken == {"mkldnn::_convolution_pointwise"}
