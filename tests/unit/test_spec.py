"""Chains: what they make of a picture's size, by numbers worked out by hand."""

import json
from typing import Any

import pytest

import extractors
from extractors.spec import Chain
from tests.whole.command import inside


@pytest.mark.parametrize(
    ("chain", "picture", "scaled", "crop_from"),
    [
        (Chain(fps=1, short_side=224, crop=224), (320, 240), (298, 224), (37, 0)),  # 298.67; 37
        (Chain(fps=1, short_side=256, crop=224), (320, 240), (341, 256), (58, 16)),  # 58.5
        (Chain(fps=1, short_side=256, crop=224), (640, 360), (455, 256), (115, 16)),  # 115.5
        (Chain(fps=1, short_side=256, crop=224, corner="even"), (320, 240), (341, 256), (58, 16)),
        (Chain(fps=1, short_side=256, crop=224, corner="even"), (640, 360), (455, 256), (116, 16)),
        (Chain(fps=1, short_side=128, stretch=(171, 128), crop=112), (640, 360), (171, 128), (29, 8)),  # 29.5
        (Chain(fps=1, short_side=128, stretch=(171, 128), crop=112, corner="even"), (64, 640), (171, 128), (30, 8)),
        (Chain(fps=1, short_side=128, stretch=(128, 171), crop=112), (640, 360), (128, 171), (8, 29)),
    ],
)
def test_sizes_and_corners(
    chain: Chain, picture: tuple[int, int], scaled: tuple[int, int], crop_from: tuple[int, int]
) -> None:
    assert chain.scaled(*picture) == scaled
    assert chain.crop_from(*scaled) == crop_from
    assert chain.frame_size(*picture) == (chain.crop, chain.crop)


@pytest.mark.parametrize(("size", "corner"), [((171, 128), (30, 8)), ((455, 256), (116, 16)), ((341, 256), (58, 16))])
def test_even_corners_are_torchvision_s(size: tuple[int, int], corner: tuple[int, int]) -> None:
    import torch
    from torchvision.transforms.functional import center_crop

    side = 112 if size == (171, 128) else 224
    picture = torch.arange(size[0] * size[1]).view(1, size[1], size[0])
    first = int(center_crop(picture, [side, side])[0, 0, 0])
    assert (first % size[0], first // size[0]) == corner
    assert Chain(fps=1, short_side=128, crop=side, corner="even").crop_from(*size) == corner


def _presets() -> list[dict[str, Any]]:
    found = json.loads(inside("list", "--presets", "--json")[0])
    return [preset for presets in found.values() for preset in presets]


def test_presets_are_listed_with_what_differs() -> None:
    rows = {row["preset"]: row for row in _presets()}
    assert set(rows) == {p.name for name in extractors.names() for p in extractors.get(name).PRESETS.values()}
    assert rows["s3d_howto100m:coot"]["step"] == 16
    assert rows["s3d_howto100m:coot"]["differs"].startswith("It writes the frames as JPEG")
    assert rows["s3d_howto100m:videoclip30"]["warning"].startswith("at 30 frames the fixed padding")
    assert rows["i3d_x101:hara"]["pixels"] == "/1 − (114.7748, 107.7354, 99.475), / (1.0, 1.0, 1.0)"


def test_presets_are_printed_as_a_table() -> None:
    text = inside("list", "--presets")[0]
    words = " ".join(text.replace("│", " ").split())
    for name in ("resnet152:howto100m-ffmpeg5", "i3d_x101:hara", "s3d_howto100m:milnce32", "locvtp_vit:in21k"):
        assert name in words
    assert "DIFFERS: " in text
    assert "WARNING: at 30" in text
