"""What published sweeps over methods say together: docs/comparison.md and the pages beside it.

from publication import publishing, writing

publishing.publish("runs/sweep", "docs/comparison")
writing.write("docs/comparison")
"""
