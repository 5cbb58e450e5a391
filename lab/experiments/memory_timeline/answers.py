"""The four parts of an answer to each question of this page: requirement, mechanism, evidence, recovery."""

from __future__ import annotations

C1 = {
    "requirement": "Name what is alive during training and when it is most. Assume one device and an optimizer with state.",
    "mechanism": "Parameters stay. Forward adds what autograd saves for backward; backward frees it node by node while gradients "
    "appear, as large as the parameters. Adam keeps two numbers for each parameter from the first step on, and computes with "
    "temporaries. Mixed in fp32 that is 16 bytes for each parameter plus activations.",
    "proof": "The nine categories sum to the total at every operation, and the total is what the allocator was asked for. It would be "
    "wrong if parameters, gradients and state together did not stay when the batch is halved.",
    "recovery": "Look where the peak falls. In forward or backward: activations, so checkpoint, lower precision, smaller micro-batches. "
    "In the optimizer: a fused or foreach-free implementation, or another optimizer. The advice turns round when the batch is tiny.",
}
C2 = {
    "requirement": "Say what autocast does to memory. Assume fp32 parameters and an optimizer in fp32.",
    "mechanism": "Matrix products run on half-size copies, so what they save for backward is half as large. Each weight that is used "
    "gets a half-size copy that lives until autocast ends, and longer if backward needs it. Parameters, gradients and state stay fp32.",
    "proof": "Saved bytes fall, weight casts appear; both are on the timeline. With 4 samples the casts are larger than what is "
    "saved, and the peak rises. It would be wrong if the peak fell by half.",
    "recovery": "If it does not help, see whether activations are at the peak at all. Pure bf16 halves parameters and state too, at the "
    "cost of precision. In inference cast the model once instead.",
}
C3 = {
    "requirement": "Say what checkpointing saves and what it costs. Assume blocks of equal size.",
    "mechanism": "A segment keeps its inputs and runs its forward again when backward reaches it: one more forward, about a third of "
    "a step. With u bytes for a block's input and 15u for its inside, segments of one block win; when layers keep alike, "
    "segments of √n do.",
    "proof": "Saved bytes fall to the inputs, recomputed operations appear, gradients are equal. It would be wrong if the peak fell where "
    "the optimizer makes it.",
    "recovery": "use_reentrant=False, and segments that are pure functions. One segment around everything saves nothing. "
    "If the peak is in the optimizer, change the optimizer.",
}
C4 = {
    "requirement": "Say how batch, accumulation and clearing of gradients move the peak. Assume losses are scaled right.",
    "mechanism": "Activations grow with the micro-batch. Gradients stay alive between micro-batches, and each new one is "
    "computed beside the old before it is added. set_to_none lets gradients go; zeros keep them.",
    "proof": "Four micro-batches keep a quarter of the activations, and the peak can still rise by the gradients that stay. It would be wrong "
    "if one backward over the summed losses needed less than one for each.",
    "recovery": "Backward for each micro-batch, zero_grad(set_to_none=True) before the forward. With small activations do not accumulate.",
}
C5 = {
    "requirement": "Find what stays alive by accident. Assume the program is correct otherwise.",
    "mechanism": "A tensor with a grad_fn holds its graph. The graph holds what was saved until backward frees it. A list of losses "
    "keeps graphs; after backward only the loss itself, 4 bytes, and the nodes in host memory.",
    "proof": "Bytes at the end of each step: flat with .item(), 4 more after backward, the whole graph without. It would be wrong if "
    "the list after backward grew by activations.",
    "recovery": "losses.append(loss.item()) or detach(); torch.no_grad() around evaluation; no retain_graph=True. The same holds for a caught "
    "exception: its traceback keeps the frames and their tensors.",
}
C6 = {
    "requirement": "Read an out-of-memory error. Assume one process on the card.",
    "mechanism": "The request that fails is rarely the culprit: it is the first one that does not fit on top of what is alive. "
    "Total, phase and owners at that moment say what to change.",
    "proof": "Under the cap the training stops at the first request beyond it: alive + request > cap, one byte more of cap per missing byte. "
    "It would be wrong if freeing the caught exception freed nothing.",
    "recovery": "First the change with the largest saving for this peak; retry outside the except block. "
    "empty_cache() makes no room for tensors that are alive. Predict before renting a larger card.",
}
C7 = {
    "requirement": "Tell allocated, reserved and what the driver sees apart. Assume one process and one stream.",
    "mechanism": "Tensors ask for bytes. The allocator gives blocks in multiples of 512 B, cut from segments of 2 MiB, 20 MiB or more "
    "that it asked from the driver and keeps. Free blocks join only inside their segment, so what is reserved and free may lie in "
    "pieces. The driver adds the context and other processes.",
    "proof": "Allocated is at most reserved, and given and free blocks sum to the segments. Fragmentation is the cause only when what is "
    "reserved and not allocated is at least as large as the request that failed.",
    "recovery": "Fragmented: expandable segments, and sizes that stay the same. Full: make what is alive smaller. Others: see who is on the "
    "device. Emptying the cache helps other processes, not this one.",
}
