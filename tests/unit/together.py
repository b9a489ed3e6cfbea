"""One of two processes that compute a batch's gradients: `python -m tests.unit.together FILE RANK PORT OUT`."""

import sys
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from pipeline.store import Features
from train import batches, data, methods, text
from train.config import Data, Fit, Run
from train.loop import Losses
from train.settings import Locvtp, Ncl, Taco

SETTINGS = {
    "taco": Taco(negatives=3, norm="l2", tau=0.2, dropout=0.0),
    "taco, in chunks, L1 evened out": Taco(negatives=2, dropout=0.0, fusion_chunk=5, normalise=("L1",)),
    "taco, text only": Taco(negatives=4, directions="text", dropout=0.0),
    "locvtp": Locvtp(symmetric=True),
    "ncl": Ncl(head="transformer", sequence_layers=1),
}


def gradients(file: Path, name: str, together: bool) -> tuple[float, dict[str, torch.Tensor]]:
    """Return the loss of a batch of 12 pairs and the gradients of all parameters, in float64."""
    run = Run(
        Data(features=file, text_encoder="tiny"),
        Fit(),
        name.split(",", maxsplit=1)[0],
        SETTINGS[name],
        ("s/train", "", ""),
    )
    corpus = data.load(Features.open(file), "s/train")
    words = text.load("tiny", corpus.texts)
    for module in words.encoder.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    found = text.pieces(words.tokenizer, corpus.texts, corpus.words, 30)
    torch.manual_seed(0)
    model = methods.get(run.method).Model(run.method_settings, run.data, corpus.dim, words.encoder).double()
    losses: nn.Module = Losses(model, run)
    if together:
        losses = DistributedDataParallel(losses, find_unused_parameters=True)
    batch = batches.make(corpus, found, torch.arange(1, 36, 3)[:12], run.data)
    batch = batches.replace(batch, video=batch.video.double())
    loss = losses(batch, torch.Generator().manual_seed(5))["loss"]
    loss.backward()
    return float(loss.detach()), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


def main() -> None:
    file, rank, port, out = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", timedelta(seconds=60), world_size=2, rank=int(rank))
    torch.save({name: gradients(Path(file), name, together=True) for name in SETTINGS}, out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
