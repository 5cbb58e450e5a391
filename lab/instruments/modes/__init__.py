"""What train mode and eval mode change in a model.

Read ``scan`` first: each module alone and all together. ``watch`` finds what ignores the mode.
"""
