"""By which accuracies settings were chosen where it is not that of the global model."""

from __future__ import annotations

from collections.abc import Sequence

from tff_pcdd.publication.published import Published

_BALANCED = """
  On {titles}, whose classes differ in size, it is the mean over classes of the accuracy on the
  held-out samples of a class (`--criterion=va_balanced`): otherwise, settings that help the small
  classes would hardly ever be chosen. Of these, only a few samples are held out, so the choice is
  less certain there."""

_PERSONAL = """
  On {titles}, it is the mean over clients of the personal model's accuracy on the client's own
  held-out samples{when} (`--criterion={criterion}`)."""

_CRITERIA = {
    "va_balanced": _BALANCED,
    "va_personal": _PERSONAL.replace("{when}", ", after local epochs"),
    "va_personal_before": _PERSONAL.replace("{when}", ", before any local step"),
}


def described(published: Sequence[Published]) -> str:
    """The federations on which another accuracy decided, for the page; empty if there are none."""
    sentences = []
    for criterion, text in _CRITERIA.items():
        titles = [
            one.title
            for one in published
            if any(call.get("criterion") == criterion for call in one.record["calls"])
        ]
        if titles:
            sentences.append(text.format(titles=" and ".join(titles), criterion=criterion))
    return "".join(sentences)
