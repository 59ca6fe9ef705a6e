"""The programs of `tff_pcdd.cli`, each run as `python -m tasks.<name>` in a clone."""
