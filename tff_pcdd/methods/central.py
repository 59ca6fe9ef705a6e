"""Central training: the samples of all clients in one place.

The first baseline for FedAvg in Communication-Efficient Learning of Deep Networks from
Decentralized Data; H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas; AISTATS 2017:
standard SGD on the full training set, without clients.

A round is `local_epochs` passes over the training samples of all clients, in batches that mix them,
with the clients' optimizer and with momentum that starts from zero. If only some clients take part
in a round, it uses as many samples as the round's clients have, drawn from all of them without
replacement. A sample is thus used as often as in the other methods: exactly if all clients take
part, otherwise in expectation. Nothing is sent. The model is evaluated like any global model; the
personal model is that model, before and after a client's local epochs.
"""

import dataclasses

from tff_pcdd.methods.contract import Method, register


@register
@dataclasses.dataclass(frozen=True)
class Central(Method):
    """One model is trained on the samples of all clients: a baseline for federated methods."""

    name = "central"
    baseline = True
    pools_samples = True
