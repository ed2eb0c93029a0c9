"""The operator's first design, which the paper's tables were made with."""
