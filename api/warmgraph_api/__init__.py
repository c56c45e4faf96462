"""What warmgraph's processes say to each other: types and names, and nothing that acts."""
