"""From a loaded model to one that serves: restore, capture, check; and what is captured later."""
