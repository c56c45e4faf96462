"""The one error of this tool that its user is to read."""


class ImageError(Exception):
    """Says what was wrong and what to do about it; the command line prints it and ends."""
