"""The demo: the whole life of one InferenceDeployment on a real cluster, step by step."""
