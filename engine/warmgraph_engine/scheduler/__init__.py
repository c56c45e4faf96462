"""Which sequences run in the next step: continuous batching over the paged KV cache."""
