"""One-off conversion of other checkpoint formats into a Hugging Face folder, which is what the
engine serves. Needs the `convert` extra; nothing here runs in a model pod."""
