"""warmgraph engine, in each model pod: an OpenAI-compatible server with bucketed, stored graphs."""
