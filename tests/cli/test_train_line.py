"""The line that tasks.train prints about a finished run."""

import pytest

from tff_pcdd import training

SUMMARY = {
    "ga_final": 31.0,
    "ga_best": 33.5,
    "pa_final": 90.0,
    "pa_before_final": 80.0,
    "rounds": 3,
    "seconds_per_round": 0.25,
}


@pytest.mark.parametrize(("algorithm", "mark"), [("fedpac", " †"), ("fedavg", "")])
def test_a_method_without_a_global_model_is_marked(
    algorithm, mark, monkeypatch, call_here, tmp_path
):
    monkeypatch.setattr(training, "run_experiment", lambda *_, **__: SUMMARY)
    flags = (f"--algorithm={algorithm}", f"--output_dir={tmp_path}", "--noreport")
    status, out, err = call_here("train", *flags)
    assert (status, err) == (0, "")
    line, *notes = out.splitlines()
    assert line == (
        f"{algorithm}: GA{mark} 31.00 (best 33.50), PA 90.00 (before local steps 80.00) % after 3 "
        f"rounds, 0.25 s a round; results in {tmp_path}"
    )
    assert notes == [
        "† no global model: GA is the mean accuracy of the personal models on all test data"
    ] * bool(mark)


def test_what_new_clients_get_follows(monkeypatch, call_here, tmp_path):
    new = {"new_clients_ga_final": 45.0, "new_clients_pa_final": 95.0}
    monkeypatch.setattr(training, "run_experiment", lambda *_, **__: {**SUMMARY, **new})
    _, out, _ = call_here("train", f"--output_dir={tmp_path}", "--noreport")
    assert out.splitlines()[1:] == ["GA, new clients 45.00; PA after, new clients 95.00 %"]
