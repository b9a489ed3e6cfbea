"""ViT with divided space-time attention (Bertasius, Wang and Torresani, ICML 2021), which LocVTP's encoder is.

Each block first lets a patch see the same patch of all frames, then the patches of its own frame and the class token.
The class token takes part in every frame's spatial attention, and is the mean of what it finds there. Parameter names
of the spatial part are timm's for an image ViT; those of the temporal part are TimeSformer's own.

The temporal attention starts as zero: until it is trained, a still picture gives what the image ViT gives.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from extractors.spec import ExtractorError

Tokens = Float[Tensor, "batch _tokens width"]
_EPS = 1e-6


class _Attention(nn.Module):
    """Self-attention over tokens, (B, N, D) to (B, N, D)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self._heads = heads

    def forward(self, x: Tokens) -> Tokens:
        B, N, D = x.shape
        q, k, v = self.qkv(x).view(B, N, 3, self._heads, D // self._heads).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, N, D))  # type: ignore[no-any-return]


class _Mlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x: Tokens) -> Tokens:
        return self.fc2(F.gelu(self.fc1(x)))  # type: ignore[no-any-return]


class _Block(nn.Module):
    """Attention in time, attention in space, perceptron."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.temporal_norm1 = nn.LayerNorm(width, eps=_EPS)
        self.temporal_attn = _Attention(width, heads)
        self.temporal_fc = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width, eps=_EPS)
        self.attn = _Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=_EPS)
        self.mlp = _Mlp(width)

    def forward(self, cls: Tokens, patches: Float[Tensor, "batch time _patches width"]) -> tuple[Tensor, Tensor]:
        """Return the class token (B, 1, D) and the patches (B, T, P, D)."""
        B, T, P, D = patches.shape
        lines = patches.transpose(1, 2).reshape(B * P, T, D)
        seen = self.temporal_fc(self.temporal_attn(self.temporal_norm1(lines)))
        patches = patches + seen.view(B, P, T, D).transpose(1, 2)
        frames = torch.cat([cls.repeat_interleave(T, 0), patches.reshape(B * T, P, D)], 1)
        seen = self.attn(self.norm1(frames)).view(B, T, P + 1, D)
        cls, patches = cls + seen[:, :, 0].mean(1, keepdim=True), patches + seen[:, :, 1:]
        return cls + self.mlp(self.norm2(cls)), patches + self.mlp(self.norm2(patches.flatten(1, 2))).view_as(patches)


class SpaceTimeViT(nn.Module):
    """Pixels (B, 3, T, S, S) to the class token after the last normalisation, (B, D). As given: ViT-B/16, 224 x 224."""

    def __init__(self, frames: int, width: int = 768, depth: int = 12, heads: int = 12, side: int = 224) -> None:
        super().__init__()
        patch = 16
        self._shape = (frames, side, side)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + (side // patch) ** 2, width))
        self.time_embed = nn.Parameter(torch.zeros(1, frames, width))
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, width, patch, patch)})
        self.blocks = nn.ModuleList(_Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width, eps=_EPS)
        for name, parameter in self.named_parameters():
            if name.endswith("bias") or ("temporal" in name and "norm" not in name):
                nn.init.zeros_(parameter)
            elif parameter.ndim > 1 and name != "time_embed":
                nn.init.trunc_normal_(parameter, std=0.02)

    def forward(self, x: Float[Tensor, "batch 3 _time _height _width"]) -> Float[Tensor, "batch width"]:
        """Return the class token."""
        if x.shape[2:] != self._shape:
            raise ExtractorError(
                f"locvtp_vit takes (frames, height, width) = {self._shape}, not {tuple(x.shape[2:])}; "
                "use one of its presets' sampling and crop"
            )
        B, T = x.shape[0], x.shape[2]
        patches = self.patch_embed["proj"](x.transpose(1, 2).flatten(0, 1)).flatten(2).transpose(1, 2)
        patches = (patches + self.pos_embed[:, 1:]).unflatten(0, (B, T)) + self.time_embed[:, :, None]
        cls = (self.cls_token + self.pos_embed[:, :1]).expand(B, -1, -1)
        for block in self.blocks:
            cls, patches = block(cls, patches)
        return self.norm(cls[:, 0])  # type: ignore[no-any-return]


def inflate(state: dict[str, Tensor], frames: int) -> dict[str, Tensor]:
    """Return an image ViT's tensors with a temporal part of zeros (its normalisations: ones), for `frames` frames."""
    width = state["cls_token"].shape[-1]
    found = {**state, "time_embed": torch.zeros(1, frames, width)}
    for key, value in state.items():
        block, _, rest = key.rpartition(".attn.")
        if block:
            found[f"{block}.temporal_attn.{rest}"] = torch.zeros_like(value)
        if rest.startswith("proj.") and block:
            found[f"{block}.temporal_fc.{rest.removeprefix('proj.')}"] = torch.zeros_like(value)
        if ".norm1." in key:
            make = torch.ones_like if key.endswith("weight") else torch.zeros_like
            found[key.replace(".norm1.", ".temporal_norm1.")] = make(value)
    return found
