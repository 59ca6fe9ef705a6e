"""Experiments in memory: settings, and a simulation of a federation; no file is written here."""
