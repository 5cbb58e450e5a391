"""What PyTorch's profiler saw of a piece of code: events, how they nest, where they come from, tables that add up."""
