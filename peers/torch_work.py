"""The benchmark's networks and a client's local training in PyTorch."""

from __future__ import annotations

import contextlib

import numpy as np
import torch
from common import Workload
from torch import nn
from torch.nn import functional


class SimpleCNN(nn.Module):
    """Two convolutions and three dense layers for images of 32×32×3."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 6, 5)
        self.second = nn.Conv2d(6, 16, 5)
        self.dense = nn.ModuleList([nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)])

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.first(x)), 2)
        x = functional.max_pool2d(functional.relu(self.second(x)), 2)
        x = torch.flatten(x, 1)
        x = functional.relu(self.dense[0](x))
        return self.dense[2](functional.relu(self.dense[1](x)))


class Block(nn.Module):
    """Two 3×3 convolutions and a shortcut."""

    def __init__(self, channels, filters, stride):
        super().__init__()
        self.first = nn.Conv2d(channels, filters, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(filters)
        self.second = nn.Conv2d(filters, filters, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(filters)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != filters:
            self.shortcut.append(nn.Conv2d(channels, filters, 1, stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(filters))

    def forward(self, x):
        h = functional.relu(self.first_norm(self.first(x)))
        return functional.relu(self.second_norm(self.second(h)) + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet18 for small images."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(64)
        blocks, channels = [], 64
        for filters, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [Block(channels, filters, stride), Block(filters, filters, 1)]
            channels = filters
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(512, 10)

    def forward(self, x):
        x = self.blocks(functional.relu(self.norm(self.stem(x))))
        return self.head(x.mean((2, 3)))


class WideBlock(nn.Module):
    """Two 3×3 convolutions with dropout between them, and a shortcut of the block's input."""

    def __init__(self, channels, filters, stride):
        super().__init__()
        self.first_norm = nn.BatchNorm2d(channels)
        self.first = nn.Conv2d(channels, filters, 3, 1, 1)
        self.second_norm = nn.BatchNorm2d(filters)
        self.second = nn.Conv2d(filters, filters, 3, stride, 1)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != filters:
            self.shortcut.append(nn.Conv2d(channels, filters, 1, stride))

    def forward(self, x):
        h = functional.dropout(self.first(functional.relu(self.first_norm(x))), 0.3, self.training)
        return self.second(functional.relu(self.second_norm(h))) + self.shortcut(x)


class WideResNet(nn.Module):
    """WRN-28-10."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 1, 1)
        blocks, channels = [], 16
        for filters, stride in ((160, 1), (320, 2), (640, 2)):
            for number in range(4):
                blocks.append(WideBlock(channels, filters, 1 if number else stride))
                channels = filters
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(640, momentum=0.9)
        self.head = nn.Linear(640, 10)

    def forward(self, x):
        x = functional.relu(self.norm(self.blocks(self.stem(x))))
        return self.head(x.mean((2, 3)))


class LSTM(nn.Module):
    """Two layers of 256 cells that predict the next of 80 characters."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(81, 8)
        self.first = nn.LSTM(8, 256, batch_first=True)
        self.second = nn.LSTM(256, 256, batch_first=True)
        self.head = nn.Linear(256, 80)
        for layer in (self.first, self.second):
            # PyTorch has two biases, of which Keras has the sum.
            nn.init.zeros_(layer.bias_hh_l0)
            layer.bias_hh_l0.requires_grad_(False)

    def forward(self, x):
        h, _ = self.first(self.embedding(x))
        _, (h, _) = self.second(h)
        return self.head(h[0])


_NETWORKS = {
    "simple_cnn": SimpleCNN,
    "resnet18": ResNet18,
    "wide_resnet": WideResNet,
    "lstm": LSTM,
}


def network(work: Workload, channels_last: bool) -> nn.Module:
    """The workload's network with its initial weights."""
    model = _NETWORKS[work.model]()
    with torch.no_grad():
        for name, tensor in _named(model).items():
            tensor.copy_(torch.from_numpy(_to_torch(name, work.weights[name], work)))
    return model.to(memory_format=torch.channels_last) if channels_last else model


def keras_weights(model: nn.Module, work: Workload) -> dict[str, np.ndarray]:
    """The weights of a network by name, in Keras' layout."""
    return {
        name: _to_keras(name, tensor.detach().float().numpy(), work)
        for name, tensor in _named(model).items()
    }


def _named(model: nn.Module) -> dict[str, torch.Tensor]:
    """The tensors of a network by the names in the workload, in the order of the layers."""
    found: dict[str, torch.Tensor] = {}
    kinds = {nn.Conv2d: "conv", nn.Linear: "dense", nn.BatchNorm2d: "norm"}
    kinds |= {nn.Embedding: "embedding", nn.LSTM: "lstm"}
    for kind, prefix in kinds.items():
        layers = [module for module in model.modules() if isinstance(module, kind)]
        for number, layer in enumerate(layers):
            if prefix == "norm":
                tensors = {"gamma": layer.weight, "beta": layer.bias}
                tensors |= {"moving_mean": layer.running_mean}
                tensors |= {"moving_variance": layer.running_var}
            elif prefix == "embedding":
                tensors = {"embeddings": layer.weight}
            elif prefix == "lstm":
                tensors = {"kernel": layer.weight_ih_l0, "bias": layer.bias_ih_l0}
                tensors |= {"recurrent_kernel": layer.weight_hh_l0}
            else:
                tensors = {"kernel": layer.weight, "bias": layer.bias}
            for name, tensor in tensors.items():
                if tensor is not None:
                    found[f"{prefix}_{number}/{name}"] = tensor
    return found


# Simple-CNN's first dense layer follows 5×5 pixels of 16 channels, which come first in PyTorch.
def _to_torch(name: str, value: np.ndarray, work: Workload) -> np.ndarray:
    if name.endswith("kernel"):
        if work.model == "simple_cnn" and name.startswith("dense_0/"):
            value = value.reshape(5, 5, 16, -1).transpose(2, 0, 1, 3).reshape(400, -1)
        value = value.transpose((3, 2, 0, 1) if value.ndim == 4 else (1, 0))
    return np.ascontiguousarray(value)


def _to_keras(name: str, value: np.ndarray, work: Workload) -> np.ndarray:
    if name.endswith("kernel"):
        value = value.transpose((2, 3, 1, 0) if value.ndim == 4 else (1, 0))
        if work.model == "simple_cnn" and name.startswith("dense_0/"):
            value = value.reshape(16, 5, 5, -1).transpose(1, 2, 0, 3).reshape(400, -1)
    return value


class InOrder(torch.utils.data.Sampler):
    """Takes samples in the workload's order, in place of a random one; each pass is an epoch."""

    def __init__(self, work: Workload, client: int):
        self._work, self._client = work, client
        self._round = self._epoch = 0

    def start(self, round_number: int) -> None:
        """Makes the next pass the first epoch of a round."""
        self._round, self._epoch = round_number, 0

    def __len__(self):
        return self._work.labels.shape[1]

    def __iter__(self):
        order = self._work.order(self._round, self._client, self._epoch)
        self._epoch += 1
        return iter(order.tolist())


class Client:
    """A client's samples, and its training."""

    def __init__(self, work: Workload, number: int):
        self._work = work
        # As PFLlib keeps them: a list of pairs of tensors.
        images = torch.from_numpy(work.images[number].transpose(0, 3, 1, 2).copy())
        samples = list(zip(images, torch.from_numpy(work.labels[number]).long(), strict=True))
        self._order = InOrder(work, number)
        self._batches = torch.utils.data.DataLoader(
            samples, work.batch_size, sampler=self._order, drop_last=True
        )

    def __len__(self):
        return len(self._order)

    def batches(self, round_number: int) -> torch.utils.data.DataLoader:
        """The batches of a round; each pass over them is an epoch."""
        self._order.start(round_number)
        return self._batches

    def train(self, model, round_number: int, *, bfloat16: bool, channels_last: bool) -> None:
        """Trains a network for a round, in place."""
        work = self._work
        optimizer = torch.optim.SGD(
            model.parameters(),
            lr=work.learning_rate,
            momentum=work.momentum,
            weight_decay=work.weight_decay,
        )
        batches = self.batches(round_number)
        model.train()
        for _ in range(work.epochs):
            for x, y in batches:
                if channels_last:
                    x = x.contiguous(memory_format=torch.channels_last)
                optimizer.zero_grad()
                with precision_of(bfloat16):
                    loss = functional.cross_entropy(model(x), y)
                loss.backward()
                if work.clip_norm:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), work.clip_norm)
                optimizer.step()


def precision_of(bfloat16: bool):
    """Autocast to bfloat16, or nothing."""
    if bfloat16:
        return torch.autocast("cpu", torch.bfloat16)
    return contextlib.nullcontext()
