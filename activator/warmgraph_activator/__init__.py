"""warmgraph activator, data path at zero replicas: holds, wakes, hands over."""
