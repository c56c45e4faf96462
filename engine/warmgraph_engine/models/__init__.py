"""Model families: what config.json means, which weights a model has, and its step function.

`config`, `weights` and `rope` are plain Python and numpy; the modules with step functions import
torch and are imported only where something is captured or run eagerly.
"""
