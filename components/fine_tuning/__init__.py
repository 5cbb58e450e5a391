"""The figures of the page on fine-tuning: what moved tensor by tensor, frozen midway, how much to freeze, low rank."""
