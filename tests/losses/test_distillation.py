"""FedNTD's distillation compared with its formula."""

import numpy as np
import pytest
import tensorflow as tf

from tff_pcdd import losses

LABELS = np.array([0, 2, 3, 2])
TEACHER, STUDENT = np.random.default_rng(0).normal(size=(2, 4, 4))


def expected(teacher, student, temperature):
    """τ²·KL of the softmaxes of three logits each, sample by sample."""
    terms = []
    for label, *rows in zip(LABELS, teacher, student, strict=True):
        powers = [np.exp(np.delete(row, label) / temperature) for row in rows]
        p, q = (power / power.sum() for power in powers)
        terms.append(np.sum(p * np.log(p / q)))
    return temperature**2 * np.mean(terms)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_formula(temperature):
    actual = losses.not_true_divergence(
        tf.constant(TEACHER, tf.float32), tf.constant(STUDENT, tf.float32), LABELS, temperature
    )
    assert float(actual) == pytest.approx(expected(TEACHER, STUDENT, temperature), rel=1e-5)


def test_only_the_student_learns_and_only_about_wrong_classes():
    teacher, student = tf.Variable(TEACHER), tf.Variable(STUDENT)
    with tf.GradientTape() as tape:
        loss = losses.not_true_divergence(teacher, student, LABELS, 2.0)
    of_teacher, of_student = tape.gradient(loss, [teacher, student])
    assert of_teacher is None
    true = np.eye(4, dtype=bool)[LABELS]
    np.testing.assert_array_equal(of_student.numpy()[true], 0)

    def powers(logits):
        return np.where(true, 0, np.exp(logits / 2))

    shares = [powers(v) / powers(v).sum(axis=1, keepdims=True) for v in (STUDENT, TEACHER)]
    np.testing.assert_allclose(of_student, (shares[0] - shares[1]) * 2 / 4, rtol=1e-6, atol=1e-9)


def test_the_logit_of_the_true_class_has_no_influence():
    changed = STUDENT.copy()
    changed[range(4), LABELS] += 50
    values = [float(losses.not_true_divergence(TEACHER, v, LABELS)) for v in (STUDENT, changed)]
    assert values[0] == values[1] > 0


def test_with_two_classes_nothing_is_left():
    student = tf.Variable([[3.0, -1.0], [0.0, 2.0]])
    with tf.GradientTape() as tape:
        loss = losses.not_true_divergence(tf.constant([[0.0, 9], [5, 1]]), student, [0, 1])
    assert float(loss) == 0
    np.testing.assert_array_equal(tape.gradient(loss, student), np.zeros([2, 2]))
