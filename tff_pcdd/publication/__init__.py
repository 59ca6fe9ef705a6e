"""What several comparisons say together: ranks over federations, and the page that publishes them.

from tff_pcdd.publication import publishing, summaries, writing

print(summaries.summarize(["runs/digits", "runs/letters"], "runs/summary", ["ga_final"]))
publishing.publish("runs/sweep", "docs/comparison")
writing.write("docs/comparison")
"""
