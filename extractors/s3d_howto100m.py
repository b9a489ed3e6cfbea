"""S3D and its text tower, trained on HowTo100M with MIL-NCE (Miech et al., CVPR 2020)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from extractors.spec import Chain, ExtractorError, Output, Preset, Weights, choose

if TYPE_CHECKING:
    from torch import Tensor, nn

    from extractors.networks.s3d import S3D

_ADDRESSES = (
    "https://www.rocq.inria.fr/cluster-willow/amiech/howto100m/",
    "https://www.di.ens.fr/~miech/S3D_howto100m/",
)
_PAGE = "https://github.com/antoine77340/S3D_HowTo100M/issues/14"  # where a user shares both files


def _published(file: str, note: str, mib: float) -> Weights:
    addresses = tuple(address + file for address in _ADDRESSES)
    return Weights(
        file=file,
        url=addresses[0],
        license="Apache-2.0",
        note=note,
        mib=mib,
        mirrors=(_PAGE,),
        dead=addresses,
    )


_WEIGHTS = _published(
    "s3d_howto100m.pth",
    "Its older address is dead too: ask the authors of S3D_HowTo100M, or someone who has the file.",
    119.2,
)
DICTIONARY = _published("s3d_dict.npy", "The words of the text tower, for `read_dictionary`.", 5.6)
_MIXED, _EMBEDDING = Output("mixed_5c", 1024), Output("video_embedding", 512)
_SLOTS = 16  # words of a text; training used 20 and evaluation 30, the published PyTorch tower 16


def _preset(name: str, chain: Chain, frames: int, outputs: tuple[Output, ...], source: str, differs: str) -> Preset:
    return Preset(
        name=f"s3d_howto100m:{name}",
        chain=chain,
        frames=frames,
        outputs=outputs,
        weights=_WEIGHTS,
        batch=1,
        source=source,
        differs=differs,
    )


PRESETS: dict[str, Preset] = {
    "univl": _preset(
        "univl",
        Chain(fps=16, short_side=224, crop=224),
        16,
        (_MIXED, _EMBEDDING),
        "The UniVL feature extractor on ffmpeg up to 4.2: one row a second.",
        "It L2-normalises; rows are raw here. The recipe of the released HowTo100M S3D features was never published; "
        "this gives their shape.",
    ),
    "univl-ffmpeg5": _preset(
        "univl-ffmpeg5",
        Chain(fps=16, short_side=224, crop=224, scaler="bicubic"),
        16,
        (_MIXED, _EMBEDDING),
        "The UniVL feature extractor on newer ffmpeg, whose filter graphs scale bicubically by default.",
        "As `univl`.",
    ),
    "milnce32": _preset(
        "milnce32",
        Chain(fps=10, short_side=224, crop_first=True),
        32,
        (_EMBEDDING, _MIXED),
        "As trained: 32 frames at 10 per second, the centre square cut in the video's own pixels and then scaled.",
        "The authors evaluate on the mean of four such windows a clip; rows here do not overlap.",
    ),
    "videoclip30": replace(
        _preset(
            "videoclip30",
            Chain(fps=30, short_side=224, crop=224),
            30,
            (_EMBEDDING, _MIXED),
            "The VideoCLIP extractor: 30 frames a row.",
            "It L2-normalises in training but not in inference; rows are raw here.",
        ),
        warning="at 30 frames the fixed padding of the pools is not the padding the network was trained with, which "
        "moves features by about 2 per cent; use it only to match VideoCLIP's models",
    ),
    "coot": replace(
        _preset(
            "coot",
            Chain(fps=16, short_side=256, crop_first=True, scaler="bicubic"),
            32,
            (_EMBEDDING, _MIXED),
            "COOT's HowTo100M features: 32 frames at 16 per second, a row every 16 frames, the centre square cut and "
            "then scaled to 256; where frames are short, the video's last 32 again, so the last two rows are one.",
            "It writes the frames as JPEG and reads them back; here they are not. Of a video of 32 frames or fewer it "
            "sees the first 16 alone, here all, padded with black.",
        ),
        stride=16,
        tail="last",
    ),
}


def preset(name: str) -> Preset:
    """Return the preset called `name`; '' is `univl`."""
    return choose(PRESETS, name)


def network(preset: Preset) -> nn.Module:
    """Return the network: (B, 3, T, S, S) to the preset's layers side by side, (B, 1536).

    T is the preset's 16 or 32 frames (30 for `videoclip30` alone), S is 224 or 256: other clips are refused.
    """
    from extractors.networks.s3d import S3D

    legal = {16, 32, 30} if preset.name == PRESETS["videoclip30"].name else {16, 32}
    if preset.frames not in legal:
        raise ExtractorError(f"{preset.name}: S3D is exact at 16 or 32 frames a row, not {preset.frames}")
    return S3D(tuple(output.layer for output in preset.outputs), preset.frames).eval()


def convert(state: dict[str, Any], preset: Preset) -> dict[str, Any]:  # noqa: ARG001
    """Change nothing: the published names are the network's."""
    return state


def read_dictionary(path: Path | str) -> list[str]:
    """Return the words of `s3d_dict.npy`; word i has row i + 1 of the word table. Pickles are refused."""
    import numpy as np

    try:
        words = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ExtractorError(
            f"{path} is no word list of S3D: {error}; it must be a .npy file of strings, without pickled objects"
        ) from None
    if not isinstance(words, np.ndarray) or words.ndim != 1 or words.dtype.kind != "U":
        raise ExtractorError(f"{path} is no word list of S3D: it must be a .npy file with one row of strings")
    return [str(word) for word in words]


def embed_texts(network: nn.Module, texts: Sequence[str], dictionary: Sequence[str]) -> Tensor:
    """Return the joint embeddings of `texts`, float32 (n, 512), not normalised; a score is a dot product.

    Words are runs of letters, digits, `_` and `'`, in lower case; unknown ones are dropped, those after the sixteenth
    ignored. Empty slots are padding (row 0), which takes part in the maximum over words, as in training.
    """
    import torch

    rows = {word: i + 1 for i, word in enumerate(dictionary)}
    tower = cast("S3D", network).text_module
    if len(dictionary) >= tower.word_embd.num_embeddings:
        raise ExtractorError(f"a dictionary of {len(dictionary)} words is not S3D's, which has 66249 at most")
    words = torch.zeros(len(texts), _SLOTS, dtype=torch.long)
    for i, text in enumerate(texts):
        known = [rows[word] for word in re.findall(r"[\w']+", text.lower()) if word in rows][:_SLOTS]
        words[i, : len(known)] = torch.tensor(known, dtype=torch.long)
    with torch.inference_mode():
        return cast("Tensor", tower(words.to(tower.word_embd.weight.device)))
