"""Libraries that people build on PyTorch: each makes a few steps, with weights drawn here.

`GPU_CHECK_DEVICE=cpu` tries the program itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch.nn import functional

from tests.gpu_check.each_library import numbers, tried

DEVICE = os.environ.get("GPU_CHECK_DEVICE", "cuda")
STEPS = 4


def learn(model: Any, loss_of: Callable[[], Any], rate: float = 1e-3) -> list[float]:
    """The losses of a few steps."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], rate)
    found = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return numbers(*found)


def transformers() -> list[float]:
    """GPT-2's architecture learns and writes; BERT's learns with bfloat16; a small Llama writes with a static cache."""
    from transformers import (
        BertConfig,
        BertForMaskedLM,
        GPT2Config,
        GPT2LMHeadModel,
        LlamaConfig,
        LlamaForCausalLM,
    )

    words = torch.randint(0, 1000, (4, 64), device=DEVICE)
    sizes = {"vocab_size": 1000, "n_embd": 128, "n_layer": 3, "n_head": 4, "n_positions": 128}
    gpt = GPT2LMHeadModel(
        GPT2Config(**sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    ).to(DEVICE)
    found = learn(gpt, lambda: gpt(words, labels=words).loss)
    gpt.eval()
    written = gpt.generate(words[:, :8], max_new_tokens=12, do_sample=False, pad_token_id=0)
    found += numbers(written.double().mean())
    bert = BertForMaskedLM(
        BertConfig(
            vocab_size=1000,
            hidden_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=256,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    ).to(DEVICE)

    def masked() -> Any:
        with torch.autocast(DEVICE, torch.bfloat16):
            return bert(words, labels=words).loss

    found += learn(bert, masked)
    llama = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=1000,
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            bos_token_id=0,
            eos_token_id=1,
            pad_token_id=0,
        )
    ).to(DEVICE, torch.bfloat16)
    llama.eval()
    written = llama.generate(words[:, :8], max_new_tokens=8, do_sample=False)
    return [*found, *numbers(written.shape[1], llama(words).logits.float().abs().mean())]


def peft() -> list[float]:
    """Low-rank adapters in a small Llama."""
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    words = torch.randint(0, 500, (2, 32), device=DEVICE)
    base = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=500,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
        )
    )
    model = get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj", "v_proj"])).to(DEVICE)
    return learn(model, lambda: model(words, labels=words).loss, 1e-2)


def timm() -> list[float]:
    """A convolutional network, a vision transformer, and one with depthwise convolutions."""
    import timm as library

    x, y = torch.randn(4, 3, 64, 64, device=DEVICE), torch.randint(0, 10, (4,), device=DEVICE)
    found: list[float] = []
    for name, how in {
        "resnet18": {},
        "vit_tiny_patch16_224": {"img_size": 64},
        "mobilenetv3_small_050": {},
        "convnext_atto": {},
    }.items():
        model = library.create_model(name, num_classes=10, **how).to(DEVICE)
        model.eval()  # nothing is left out at random, and means are those that were kept
        found += learn(model, lambda model=model: functional.cross_entropy(model(x), y), 1e-4)
    return found


def torchvision() -> list[float]:
    """A detector: its own kernels for boxes, and non-maximum suppression."""
    from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn
    from torchvision.ops import deform_conv2d, nms, roi_align

    boxes = torch.rand(200, 4, device=DEVICE) * 50
    boxes[:, 2:] += boxes[:, :2]
    kept = nms(boxes, torch.rand(200, device=DEVICE), 0.5)
    x = torch.randn(1, 4, 32, 32, device=DEVICE)
    pooled = roi_align(x, [boxes[:20] / 4], 5)
    bent = deform_conv2d(
        x, 0.1 * torch.randn(1, 18, 32, 32, device=DEVICE), torch.randn(4, 4, 3, 3, device=DEVICE), padding=1
    )
    detector = fasterrcnn_mobilenet_v3_large_320_fpn(weights=None, weights_backbone=None, num_classes=3)
    detector.to(DEVICE).eval()
    with torch.no_grad():
        seen = detector([torch.rand(3, 160, 160, device=DEVICE)])[0]
    return numbers(len(kept), pooled.abs().mean(), bent.abs().mean(), len(seen["scores"]))


def lightning() -> list[float]:
    """A trainer with mixed precision, checkpoints off."""
    import lightning as library

    class Fit(library.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
            self.losses: list[Any] = []

        def training_step(self, batch: Any, _: int) -> Any:
            x, y = batch
            loss = functional.mse_loss(self.net(x).float(), y)
            self.losses.append(loss.detach())
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), 1e-2)

    x = torch.randn(128, 16)
    rows = torch.utils.data.TensorDataset(x, x.sin().sum(1, keepdim=True))
    model = Fit()
    trainer = library.Trainer(
        accelerator="gpu" if DEVICE == "cuda" else "cpu",
        devices=1,
        max_epochs=2,
        precision="bf16-mixed",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, torch.utils.data.DataLoader(rows, 32, pin_memory=DEVICE == "cuda"))
    return numbers(*model.losses)


def accelerate() -> list[float]:
    """Hugging Face's loop, with gradients gathered over two batches."""
    from accelerate import Accelerator

    loop = Accelerator(gradient_accumulation_steps=2, cpu=DEVICE == "cpu")
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    rows = torch.utils.data.DataLoader(torch.randn(64, 8), 16)
    model, optimizer, rows = loop.prepare(model, optimizer, rows)
    losses = []
    for x in rows:
        with loop.accumulate(model):
            loss = (model(x) - x).square().mean()
            loop.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.detach())
    return numbers(*losses)


def torch_geometric() -> list[float]:
    """Convolution and attention over a graph."""
    from torch_geometric.nn import GATConv, GCNConv

    x, edges = torch.randn(100, 16, device=DEVICE), torch.randint(0, 100, (2, 400), device=DEVICE)
    y = torch.randint(0, 4, (100,), device=DEVICE)
    found: list[float] = []
    for layer in (GCNConv(16, 4), GATConv(16, 4)):
        layer.to(DEVICE)
        found += learn(layer, lambda layer=layer: functional.cross_entropy(layer(x, edges), y), 1e-2)
    return found


def gpytorch() -> list[float]:
    """An exact Gaussian process."""
    import gpytorch as library

    x = torch.linspace(0, 1, 80, device=DEVICE, dtype=torch.float64)
    y = torch.sin(6 * x)

    class Process(library.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(x, y, library.likelihoods.GaussianLikelihood())
            self.mean = library.means.ConstantMean()
            self.covariance = library.kernels.ScaleKernel(library.kernels.RBFKernel())

        def forward(self, x: Any) -> Any:
            return library.distributions.MultivariateNormal(self.mean(x), self.covariance(x))

    model = Process().to(DEVICE, torch.float64)
    model.train()
    of = library.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    return learn(model, lambda: -of(model(x), y), 0.1)


def e3nn() -> list[float]:
    """A product of tensors that turns with its arguments; TorchScript."""
    from e3nn import o3

    product = o3.FullyConnectedTensorProduct("4x0e+2x1o", "1x0e+1x1o", "4x0e+2x1o").to(DEVICE)
    x, y = torch.randn(32, 10, device=DEVICE), torch.randn(32, 4, device=DEVICE)
    return learn(product, lambda: product(x, y).square().mean())


def torchdiffeq() -> list[float]:
    from torchdiffeq import odeint

    field = torch.nn.Linear(4, 4).to(DEVICE)
    start, times = torch.randn(8, 4, device=DEVICE), torch.linspace(0, 1, 5, device=DEVICE)
    return learn(field, lambda: odeint(lambda _, y: field(y).tanh(), start, times)[-1].square().mean())


PARTS = (
    *(transformers, peft, timm, torchvision, lightning, accelerate),
    *(torch_geometric, gpytorch, e3nn, torchdiffeq),
)


def main() -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    # The same numbers for each, whatever the one before it drew.
    found = tried(PARTS, begin=lambda: torch.manual_seed(11))
    print(json.dumps({**found, "version": torch.__version__}))


if __name__ == "__main__":
    main()
