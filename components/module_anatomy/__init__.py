"""The figures of the page on modules: the tree with four marks on each tensor, hooks as brackets, keys of a state dict."""
