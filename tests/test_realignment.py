"""FedLoGe's realignment."""

import numpy as np

from tff_pcdd import realignment


def test_global_realign_makes_lengths_equal_and_keeps_directions():
    psi = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    aligned = realignment.global_realign(psi).numpy()
    np.testing.assert_allclose(aligned, 1.7 * psi / np.linalg.norm(psi, axis=0), rtol=1e-5)
    np.testing.assert_allclose(
        np.linalg.norm(realignment.global_realign(psi, scale=1.0), axis=0), np.ones(3), rtol=1e-5
    )


def test_local_realign_uses_the_clients_lengths():
    rng = np.random.default_rng(0)
    psi, phi = rng.normal(size=(2, 5, 3)).astype(np.float32)
    expected = psi * np.sqrt((phi**2).sum(axis=0))
    np.testing.assert_allclose(realignment.local_realign(psi, phi), expected, rtol=1e-5)


def test_zero_columns_stay_zero():
    psi = np.array([[0.0, 3.0], [0.0, 4.0]])
    np.testing.assert_allclose(realignment.global_realign(psi, 1.0), [[0.0, 0.6], [0.0, 0.8]])
    np.testing.assert_allclose(realignment.local_realign(psi, psi), [[0.0, 15.0], [0.0, 20.0]])
    np.testing.assert_allclose(realignment.local_realign(psi + 1.0, psi * 0.0), np.zeros((2, 2)))


def test_golden_realignment(golden):
    z = golden("fedloge_realign_eval")
    psi, phi = z["g_weight"].T, z["l_weight"].T
    aligned = realignment.global_realign(psi, float(z["ga_fr_scale"]))
    np.testing.assert_allclose(aligned, z["ga_fr_weight"].T, rtol=1e-6)
    np.testing.assert_allclose(
        z["test_x"] @ aligned + z["g_bias"], z["gm_logits_after"], rtol=1e-6, atol=1e-9
    )
    personal = realignment.local_realign(psi, phi)
    np.testing.assert_allclose(personal, z["la_fr_weight"].T, rtol=1e-6)
    logits = z["test_x"] @ personal + z["g_bias"]
    np.testing.assert_allclose(logits, z["pm_logits_realigned_only"], rtol=1e-6, atol=1e-9)
    both = logits + z["test_x"] @ phi + z["l_bias"]
    np.testing.assert_allclose(both, z["pm_logits_sum_local_plus_realigned"], rtol=1e-6, atol=1e-9)
