"""Losses and logits of the methods, as plain TensorFlow functions."""

from tff_pcdd.losses._numerics import l2_normalize, safe_norm
from tff_pcdd.losses.balanced import balanced_logits
from tff_pcdd.losses.contrastive import model_contrast, prototype_contrast
from tff_pcdd.losses.distillation import (
    divergence,
    diversity,
    not_true_divergence,
    right_divergence,
)
from tff_pcdd.losses.etf import (
    MASKED_LOGIT,
    PHI_VARIANTS,
    etf_logits,
    mask_logits,
    phi_from_counts,
    phi_normalizer,
)
from tff_pcdd.losses.feddecorr import DECORRELATION_FORMS, decorrelation
from tff_pcdd.losses.fedloge import dot_regression, equal_norm, maximal_angle
from tff_pcdd.losses.fedmr import (
    INTER_READINGS,
    INTRA_FORMS,
    class_sums,
    inter_class,
    intra_class,
    merge_prototypes,
)

__all__ = [
    "DECORRELATION_FORMS",
    "INTER_READINGS",
    "INTRA_FORMS",
    "MASKED_LOGIT",
    "PHI_VARIANTS",
    "balanced_logits",
    "class_sums",
    "decorrelation",
    "divergence",
    "diversity",
    "dot_regression",
    "equal_norm",
    "etf_logits",
    "inter_class",
    "intra_class",
    "l2_normalize",
    "mask_logits",
    "maximal_angle",
    "merge_prototypes",
    "model_contrast",
    "not_true_divergence",
    "phi_from_counts",
    "phi_normalizer",
    "prototype_contrast",
    "right_divergence",
    "safe_norm",
]
