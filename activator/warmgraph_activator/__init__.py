"""warmgraph activator, data path at zero replicas: holds requests, wakes the deployment, hands over."""
