"""The one exception of this package."""


class DataError(ValueError):
    """Data that cannot be used as asked; the message is one line and says what would be right."""
