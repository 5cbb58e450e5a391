"""Every byte of every tensor that the dispatcher sees: when it came, what it was, when it went.

NOTE How a storage gets its category.
1. A storage is alive from the operation that made it until its last reference goes, in Python or in C++: a weak
   reference says when. Views, in-place results and tied weights share a storage and cost nothing more.
2. It counts as what it is or becomes, in this order: parameter, buffer, input (registered before the run); optimizer
   state; gradient (arrived in ``.grad``); weight cast (a lower-precision copy of a parameter); saved (autograd holds it
   for backward, from its birth until autograd lets go of it); recomputed (born in a checkpoint's second forward and
   needed by the backward after it); else temporary.
3. The phase is that of the operation: the engine runs (backward; recompute while gradients are enabled or a module
   runs inside it), the optimizer steps, or what the training step says.
4. The autograd node of a backward operation carries the module that made it in its ``metadata``.
5. Saved-tensor hooks switch torch's check for in-place writes off, so the unpack hook makes it again.
6. Fake tensors run the same operations with shapes only; where a program asks for a value it gets 0, and that is counted.

Not seen: workspaces and temporaries inside one operator, oneDNN's opaque tensors, random-number states that checkpoint
keeps, ``untyped_storage().resize_()``, autograd's own nodes. ``torch.func`` transforms refuse saved-tensor hooks.
"""
