"""Ways to read a profile wrong: what people write, what to write instead. Both are run as they are printed.

Each program leaves ``result``: name -> number, text, or None with a reason as ``(None, reason)``. A name that ends in
``_s``, ``_bytes`` or ``_ratio`` says its unit.
"""

from __future__ import annotations

from dataclasses import dataclass

HEAD = """import time
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule
"""


@dataclass(frozen=True)
class TrapPrograms:
    """The two programs of a trap, without ``HEAD``."""

    title: str
    wrong: str
    right: str
    explanation: str
    measures: bool = False
    """The trap is what the first program measures, not how it ends."""


PROGRAMS: dict[str, TrapPrograms] = {
    "clocks": TrapPrograms(
        "five clocks on one matmul",
        """x = torch.randn(512, 512, device=device)
x @ x
started = time.perf_counter()
x @ x
result = {"naive_clock_s": time.perf_counter() - started}
""",
        """import torch.utils.benchmark as benchmark

x = torch.randn(512, 512, device=device)
x @ x

def wait():
    if device == "cuda":
        torch.cuda.synchronize()

def best_of_5(finish):
    times = []
    for _ in range(5):
        wait()
        started = time.perf_counter()
        x @ x
        finish()
        times.append(time.perf_counter() - started)
    return min(times)

result = {"naive_clock_s": best_of_5(lambda: None), "synchronised_clock_s": best_of_5(wait)}
if device == "cuda":
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    before.record(); x @ x; after.record()
    wait()
    result["events_s"] = before.elapsed_time(after) / 1e3
else:
    result["events_s"] = None, "events are marks in the queue of a device; the CPU has no queue"
result["benchmark_timer_s"] = benchmark.Timer("x @ x", globals={"x": x}).timeit(10).median
kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device == "cuda")
with profile(activities=kinds) as prof:
    for _ in range(10):
        x @ x
    wait()
row = next(e for e in prof.key_averages() if e.key == "aten::mm")
result["profiler_host_s"] = row.cpu_time_total / row.count / 1e6
result["profiler_device_s"] = row.device_time_total / row.count / 1e6 if device == "cuda" else (None, "needs a CUDA device")
""",
        "On a device a call returns when the work is queued, so a naive clock reads the launch. On a CPU the call returns when "
        "the work is done: all clocks agree, and the difference cannot be shown here.",
    ),
    "warm_up": TrapPrograms(
        "the first step pays for the others",
        """model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.Flatten(), torch.nn.Linear(16 * 900, 10)).to(device)
optimizer = torch.optim.Adam(model.parameters())
x = torch.randn(8, 3, 32, 32, device=device)

def step():
    started = time.perf_counter()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    loss.item()
    return time.perf_counter() - started

result = {"first_step_s": step()}
""",
        """model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.Flatten(), torch.nn.Linear(16 * 900, 10)).to(device)
optimizer = torch.optim.Adam(model.parameters())
x = torch.randn(8, 3, 32, 32, device=device)

def step():
    started = time.perf_counter()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    loss.item()
    return time.perf_counter() - started

times = [step() for _ in range(12)]
result = {"median_after_3_steps_s": sorted(times[3:])[4], "first_over_median_ratio": times[0] / sorted(times[3:])[4]}
""",
        "The first step creates the optimizer's state, picks and caches kernels, and fills the allocator. A fresh process pays "
        "more than this warm one. Throw the first steps away, or give the profiler a schedule with wait and warmup.",
    ),
    "self_total": TrapPrograms(
        "totals that add up to too much",
        """conv, x = torch.nn.Conv2d(8, 16, 3), torch.randn(4, 8, 64, 64)
conv(x)
with profile(activities=[ProfilerActivity.CPU]) as prof:
    for _ in range(5):
        conv(x)
result = {"sum_of_totals_s": sum(e.cpu_time_total for e in prof.key_averages()) / 1e6}
""",
        """conv, x = torch.nn.Conv2d(8, 16, 3), torch.randn(4, 8, 64, 64)
conv(x)
with profile(activities=[ProfilerActivity.CPU]) as prof:
    for _ in range(5):
        conv(x)
self_s = sum(e.self_cpu_time_total for e in prof.key_averages()) / 1e6
totals_s = sum(e.cpu_time_total for e in prof.key_averages()) / 1e6
result = {"sum_of_self_s": self_s, "sum_of_totals_over_sum_of_self_ratio": totals_s / self_s}
""",
        "conv2d calls convolution, which calls _convolution, which calls the kernel: one second is in four totals. Only self "
        "times may be added.",
    ),
    "inside_with": TrapPrograms(
        "asking for results inside the with",
        """with profile(activities=[ProfilerActivity.CPU]) as prof:
    torch.ones(10).exp()
    result = {"rows": len(prof.key_averages())}
""",
        """with profile(activities=[ProfilerActivity.CPU]) as prof:
    torch.ones(10).exp()
result = {"rows": len(prof.key_averages())}
""",
        "The events are collected when the context is left. Inside it there is nothing to read yet.",
    ),
    "nested": TrapPrograms(
        "a profiler inside a profiler",
        """with profile(activities=[ProfilerActivity.CPU]) as outer:
    torch.ones(10).exp()
    with profile(activities=[ProfilerActivity.CPU]) as inner:
        torch.ones(10).log()
    torch.ones(10).sin()
result = {"events_of_the_outer": len(outer.events()), "events_of_the_inner": len(inner.events())}
""",
        """with profile(activities=[ProfilerActivity.CPU]) as outer:
    torch.ones(10).exp()
    with record_function("inner"):
        torch.ones(10).log()
    torch.ones(10).sin()
result = {"events_of_the_outer": len(outer.events())}
""",
        "A process has one profiler. Starting another takes it away from the first, and no error says so. Mark the inner part "
        "with record_function.",
        measures=True,
    ),
    "stacks": TrapPrograms(
        "stacks that stay empty",
        """with profile(activities=[ProfilerActivity.CPU], with_stack=True) as prof:
    torch.ones(10).exp()
operators = [e for e in prof.events() if e.name.startswith("aten::")]
result = {"operators": len(operators), "operators_with_a_stack": sum(bool(e.stack) for e in operators)}
""",
        """verbose = torch._C._profiler._ExperimentalConfig(verbose=True)
with profile(activities=[ProfilerActivity.CPU], with_stack=True, experimental_config=verbose) as prof:
    torch.ones(10).exp()
operators = [e for e in prof.events() if e.name.startswith("aten::")]
result = {"operators": len(operators), "operators_with_a_stack": sum(bool(e.stack) for e in operators)}
""",
        "with_stack records the frames, but puts them into the table only in verbose mode. The exported trace has them always. "
        "A stack names the line of the function, not of the call.",
    ),
    "schedule": TrapPrograms(
        "a schedule without step()",
        """steps = schedule(wait=1, warmup=1, active=2)
with profile(activities=[ProfilerActivity.CPU], schedule=steps) as prof:
    for _ in range(6):
        torch.ones(10).exp()
result = {"rows": len(prof.key_averages())}
""",
        """steps = schedule(wait=1, warmup=1, active=2)
with profile(activities=[ProfilerActivity.CPU], schedule=steps) as prof:
    for _ in range(6):
        torch.ones(10).exp()
        prof.step()
result = {"rows": len(prof.key_averages())}
""",
        "wait, warmup and active are counted by prof.step(). Without it the schedule stays in step 0, which waits. The message "
        "blames the initialisation.",
    ),
    "shapes": TrapPrograms(
        "grouping by shape without shapes",
        """x, y = torch.randn(64, 64), torch.randn(256, 256)
with profile(activities=[ProfilerActivity.CPU]) as prof:
    x @ x, y @ y
rows = prof.key_averages(group_by_input_shape=True)
result = {"rows_for_mm": sum(e.key == "aten::mm" for e in rows)}
""",
        """x, y = torch.randn(64, 64), torch.randn(256, 256)
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as prof:
    x @ x, y @ y
rows = prof.key_averages(group_by_input_shape=True)
result = {"rows_for_mm": sum(e.key == "aten::mm" for e in rows)}
""",
        "Shapes are kept only with record_shapes=True. Without it all shapes look alike, and no error says so.",
    ),
    "memory": TrapPrograms(
        "negative memory",
        """old, new = [torch.ones(1000)], []
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
    with record_function("allocate"):
        new.append(torch.ones(500))
    with record_function("release_new"):
        new.clear()
    with record_function("release_old"):
        old.clear()
row = {e.key: e for e in prof.key_averages()}
result = {f"{name}_bytes": row[name].cpu_memory_usage for name in ("allocate", "release_new", "release_old")}
""",
        """x = torch.randn(1000)
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
    with record_function("two_temporaries"):
        y = (x * 2 + 1).exp()
row = {e.key: e for e in prof.key_averages()}
block = row["two_temporaries"]
result = {"total_bytes": block.cpu_memory_usage, "self_bytes": block.self_cpu_memory_usage}
""",
        "The number is allocated minus freed, so a release is negative. Freeing what was allocated before the profile began "
        "shows as 0. Children allocate temporaries and the block around them frees them: its self is far below its total.",
    ),
    "tiny_operations": TrapPrograms(
        "tiny operations are mostly Python",
        """x = torch.ones(1)
started = time.perf_counter()
for _ in range(2000):
    x.add_(1.0)
clock_s = time.perf_counter() - started
with profile(activities=[ProfilerActivity.CPU]) as prof:
    for _ in range(2000):
        x.add_(1.0)
row = next(e for e in prof.key_averages() if e.key == "aten::add_")
result = {"one_call_by_the_clock_s": clock_s / 2000, "one_call_in_the_profile_s": row.cpu_time_total / 2000 / 1e6}
""",
        """x = torch.ones(2000)
started = time.perf_counter()
x.add_(1.0)
result = {"all_2000_in_one_call_s": time.perf_counter() - started}
""",
        "A call costs about a microsecond before any arithmetic: Python, argument parsing, dispatch. The profiler adds its own "
        "cost to each. The repair is not a faster operator but fewer calls.",
    ),
    "sort_key": TrapPrograms(
        "a misspelt sort key",
        """with profile(activities=[ProfilerActivity.CPU]) as prof:
    torch.ones(2) + 1
prof.key_averages().table(sort_by="self_cpu_time")
""",
        """with profile(activities=[ProfilerActivity.CPU]) as prof:
    torch.ones(2) + 1
prof.key_averages().table(sort_by="self_cpu_time_total")
keys = [k for k in dir(prof.key_averages()[0]) if k.endswith(("_time_total", "_memory_usage")) and "cuda" not in k]
result = {"keys_that_work": ", ".join([*keys, "count"])}
""",
        "The key is an attribute of a row, looked up without a check. The ones that work are listed.",
    ),
    "export_twice": TrapPrograms(
        "saving a trace twice",
        """import os, tempfile

with profile(activities=[ProfilerActivity.CPU]) as prof:
    torch.ones(3).exp()
with tempfile.TemporaryDirectory() as folder:
    prof.export_chrome_trace(os.path.join(folder, "a.json"))
    prof.export_chrome_trace(os.path.join(folder, "b.json"))
""",
        """import os, shutil, tempfile

with profile(activities=[ProfilerActivity.CPU]) as prof:
    torch.ones(3).exp()
with tempfile.TemporaryDirectory() as folder:
    prof.export_chrome_trace(os.path.join(folder, "a.json"))
    shutil.copy(os.path.join(folder, "a.json"), os.path.join(folder, "b.json"))
    result = {"files": len(os.listdir(folder))}
""",
        "Saving hands the events over. Keep the first file and copy that.",
    ),
    "no_device": TrapPrograms(
        "asking for CUDA where there is none",
        """with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
    torch.ones(3).exp()
table = prof.key_averages().table(sort_by="self_cpu_time_total")
result = {"rows": len(prof.key_averages()), "has_a_CUDA_column": str("CUDA" in table)}
""",
        """found = torch.profiler.supported_activities()
with profile(activities=found) as prof:
    torch.ones(3).exp()
result = {"activities": ", ".join(sorted(str(a).split(".")[-1] for a in found)), "rows": len(prof.key_averages())}
""",
        "Without a device PyTorch warns once and records the CPU. Rows for kernels are then missing, which is not the same as "
        "zero.",
    ),
    "step_rows": TrapPrograms(
        "ProfilerStep looks like the hot spot",
        """steps = schedule(wait=0, warmup=0, active=3, repeat=1)
with profile(activities=[ProfilerActivity.CPU], schedule=steps) as prof:
    for _ in range(3):
        torch.ones(10).exp()
        prof.step()
rows = prof.key_averages()
result = {"row_with_the_largest_total": max(rows, key=lambda e: e.cpu_time_total).key}
""",
        """steps = schedule(wait=0, warmup=0, active=3, repeat=1)
with profile(activities=[ProfilerActivity.CPU], schedule=steps) as prof:
    for _ in range(3):
        torch.ones(10).exp()
        prof.step()
rows = [e for e in prof.key_averages() if not e.key.startswith("ProfilerStep")]
result = {"operator_with_the_largest_self": max(rows, key=lambda e: e.self_cpu_time_total).key}
""",
        "ProfilerStep is the frame around a step: 100 %, not an operator. Trace viewers need it, and only a schedule writes it.",
    ),
    "backward_rows": TrapPrograms(
        "backward rows repeat the same time",
        """layer, x = torch.nn.Linear(64, 64), torch.randn(256, 64)
layer(x).sum().backward()
with profile(activities=[ProfilerActivity.CPU]) as prof:
    layer(x).sum().backward()
row = {e.key: e for e in prof.key_averages()}
names = ("autograd::engine::evaluate_function: AddmmBackward0", "AddmmBackward0", "aten::mm")
result = {f"total of {name.split(' ')[-1]}, {number}_s": row[name].cpu_time_total / 1e6 for number, name in enumerate(names, 1)}
""",
        """layer, x = torch.nn.Linear(64, 64), torch.randn(256, 64)
layer(x).sum().backward()
with profile(activities=[ProfilerActivity.CPU]) as prof:
    layer(x).sum().backward()
row = {e.key: e for e in prof.key_averages()}
names = ("autograd::engine::evaluate_function: AddmmBackward0", "AddmmBackward0", "aten::mm")
result = {f"self of {name.split(' ')[-1]}, {number}_s": row[name].self_cpu_time_total / 1e6 for number, name in enumerate(names, 1)}
""",
        "The engine's wrapper, the node and its operator are nested: one product of matrices is in three totals. The operator "
        "table of this page folds the wrapper into the node.",
    ),
    "labels": TrapPrograms(
        "your own code is not in the table",
        """x = torch.randn(64, 64)
with profile(activities=[ProfilerActivity.CPU]) as prof:
    (x @ x.T).softmax(-1)
result = {"rows_that_say_attention": sum("attention" in e.key for e in prof.key_averages())}
""",
        """x = torch.randn(64, 64)
with profile(activities=[ProfilerActivity.CPU]) as prof:
    with record_function("attention"):
        with record_function("scores"):
            scores = x @ x.T
        scores.softmax(-1)
row = {e.key: e for e in prof.key_averages()}
result = {"attention_s": row["attention"].cpu_time_total / 1e6, "scores_s": row["scores"].cpu_time_total / 1e6}
""",
        "The profiler knows operators, not your functions. record_function gives a part of your code a row of its own.",
    ),
}  # fmt: skip
