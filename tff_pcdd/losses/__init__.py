"""Losses and logits of FedGELA, FedMR and FedLoGe as plain TensorFlow functions."""

from tff_pcdd.losses._numerics import l2_normalize, safe_norm
from tff_pcdd.losses.etf import (
    MASKED_LOGIT,
    PHI_VARIANTS,
    etf_logits,
    mask_logits,
    phi_from_counts,
    phi_normalizer,
)

__all__ = [
    "MASKED_LOGIT",
    "PHI_VARIANTS",
    "etf_logits",
    "l2_normalize",
    "mask_logits",
    "phi_from_counts",
    "phi_normalizer",
    "safe_norm",
]
