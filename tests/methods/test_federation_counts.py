"""Which methods' clients depend on exact class counts of others, found by leaving a client out."""

import dataclasses

import numpy as np
import pytest

from tests import support
from tff_pcdd import methods

CASES = [
    *((name, {}) for name in methods.names()),
    *(("fedgela", {"adaptation": name}) for name in ("relative", "sqrt", "exp", "none")),
    ("logitadjust", {"tau": 0.0}),
]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_constants_change_with_other_clients_only_where_the_method_says_so(name, options):
    spec = support.training_spec(name, **options)
    counts = np.array(spec.task.class_counts)
    of_client = counts[1].astype(np.float32)
    counts[0] = 0
    fewer = dataclasses.replace(spec.task, class_counts=counts)
    before, after = (spec.method.constants(of_client, task) for task in (spec.task, fewer))
    same = all(np.array_equal(before[key], after[key]) for key in before)
    assert same == (not spec.method.uses_federation_counts)
