"""The figures of the page on mixed precision: gradients against a window, a scaler at work, dtypes by line, lost updates."""
