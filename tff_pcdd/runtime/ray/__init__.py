"""The runtime `ray`: shares of a round's clients in Ray's actors."""
