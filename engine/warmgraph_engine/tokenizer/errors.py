"""What can be wrong with a prompt that only the tokenizer or the chat template can tell."""

from __future__ import annotations


class PromptError(ValueError):
    """The request's fault; the message is for whoever sent it."""
