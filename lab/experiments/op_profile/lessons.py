"""Presets with a prediction to make, and the answers to the interview questions."""

from __future__ import annotations

from lab.contract import Lesson
from lab.experiments.op_profile.readings import (
    arithmetic_share,
    backward_ratio,
    first_ratio,
    largest_part,
    part_share,
    reading,
)
from lab.experiments.op_profile.schema import Params, Result

OWN_PROGRAM = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 64)
        self.second = nn.Linear(64, 64)
        self.last = nn.Linear(64, 4)

    def forward(self, x):
        hidden = torch.tanh(self.first(x))
        hidden = hidden + torch.tanh(self.second(hidden))
        return self.last(hidden)

model = Net()
batch = (torch.randn(32, 16), torch.randint(0, 4, (32,)))
"""

_BACKWARD = Lesson(
    row="H2",
    title="a transformer step, taken apart",
    params=Params(),
    question="The backward pass of a small GPT takes how long, compared with its forward pass?",
    choices={
        "less than 1.3 times": "Each product of the forward needs two in the backward: one for the input, one for the weight.",
        "1.3 to 4 times": "Two products for each one of the forward, and the rest of the nodes: about twice.",
        "more than 4 times": "Nothing is run again: the forward saved what the backward needs.",
    },
    answer=lambda r: _between(
        backward_ratio(r), 1.3, 4, ("less than 1.3 times", "1.3 to 4 times", "more than 4 times")
    ),
    evidence=backward_ratio,
    evidence_name="backward over forward",
    requirement="Say where the time of a training step goes. Assume one device and a batch that is ready.",
    mechanism=(
        "A step loads, copies, runs forward and backward, updates, and waits for the device. The parts are ranges on one clock, "
        "so they add up; what is between them is shown as rest. Inside a part, operators call operators: only self times add."
    ),
    proof=(
        "Read the bars: backward over forward is about two, since each matmul of the forward has two in the backward. It would be "
        "wrong if the parts did not add up to the step."
    ),
    recovery=(
        "Start at the largest part, then at its largest self time. If the bare step and the profiled step differ much, trust the "
        "bare one for the total and the profile for the shares."
    ),
)

_SELF_TOTAL = Lesson(
    row="H2",
    title="self and total of a convolution",
    params=Params(model="mlp", layers=1, width=64, trap="self_total"),
    question="The totals of all rows of a profile are added. Against the real time, the sum is",
    choices={
        "equal": "conv2d contains convolution contains the kernel: the same second is in each total.",
        "smaller": "Nothing that ran is missing from the totals; it is there several times.",
        "several times larger": "Each level of the nesting counts its whole time. Only self times add up.",
    },
    answer=lambda r: _between(_totals(r), 0.99, 1.5, ("smaller", "equal", "several times larger")),
    evidence=lambda r: _totals(r),
    evidence_name="sum of totals over sum of self",
    requirement="Explain the two time columns of a profiler table, and which one may be added.",
    mechanism=(
        "An operator's total is the time from its begin to its end. Operators call operators, so an inner second is in the total "
        "of every caller. Self is the total minus the totals of what was called directly."
    ),
    proof=(
        "Open conv2d in the table: its total is its self time plus the total of convolution below it. The sum of totals is "
        "several times the sum of self times; the sum of self times is the step."
    ),
    recovery="Sort by self to find the kernel, by total to find the layer. Do not add rows of totals, nor host and device time.",
)

_HOST = Lesson(
    row="H2",
    title="small layers, many calls",
    params=Params(model="mlp", layers=8, width=32, batch=4),
    question="Eight layers of width 32, four samples, Adam in a for-loop. Which part takes longest?",
    choices={
        "forward": "Nine small products are little; count the calls of the other parts.",
        "backward": "Two products for each of the forward, but the optimizer has some ten operators for each of 18 parameters.",
        "optimizer": "Adam in a loop runs about ten operators for each parameter, however small.",
    },
    answer=lambda r: largest_part(r),
    evidence=lambda r: part_share(r, "optimizer_s"),
    evidence_name="share of the optimizer",
    requirement="Say why a small model does not get faster on a faster chip.",
    mechanism=(
        "Each call costs microseconds of Python and dispatch before any arithmetic. With small tensors that is the step. The "
        "for-loop optimizer multiplies it by the number of parameters."
    ),
    proof=(
        "The verdict is bound by the host, and the optimizer has the longest bar. Press Fuse the optimizer: its bar shrinks and "
        "the products do not change."
    ),
    recovery="Fewer, larger calls: fused optimizer, larger batch, compile. On a device also CUDA graphs. A faster chip does not help.",
)

_INPUT = Lesson(
    row="H2",
    title="the loader holds the step up",
    params=Params(model="mlp", layers=2, width=64, batch=16, decode_us=1000),
    question="Each sample costs 1 ms of Python, the batch has 16. What share of the step is waiting for data?",
    choices={
        "less than a third": "16 samples cost 16 ms; the model needs one or two.",
        "one to two thirds": "Compare 16 ms of loading with the bars of the model.",
        "more than two thirds": "Loading is in the same process: the step waits for all 16 samples.",
    },
    answer=lambda r: _between(
        part_share(r, "data_loading_s"),
        1 / 3,
        2 / 3,
        ("less than a third", "one to two thirds", "more than two thirds"),
    ),
    evidence=lambda r: part_share(r, "data_loading_s"),
    evidence_name="share of data loading",
    requirement="Tell an input-bound step from a slow model, and say what to change.",
    mechanism=(
        "Without workers the DataLoader makes the batch inside next(), while the model waits. Workers make the next batches "
        "meanwhile; the wait is then only what is left."
    ),
    proof=(
        "Data loading is most of the step and the operators are nearly idle. Press the button: with a worker process the wait "
        "falls, and the operators stay as they were."
    ),
    recovery=(
        "Workers until the wait is gone, then no more. If one sample costs too much, decode less or store it decoded. On a "
        "device, pin memory so that the copy runs beside the work."
    ),
)

_CLOCKS = Lesson(
    row="H3",
    title="five clocks on one matmul",
    params=Params(model="mlp", layers=1, width=64, trap="clocks"),
    question="A clock around x @ x without synchronising, against one that waits for the device. On this device the first shows",
    choices={
        "much less": "That is what a GPU gives: the call returns when the work is queued.",
        "about the same": "On a CPU the call returns when the work is done. There is nothing to wait for.",
        "much more": "Waiting can only add time.",
    },
    answer=lambda r: _between(_clock_ratio(r), 0.33, 3, ("much less", "about the same", "much more")),
    evidence=lambda r: _clock_ratio(r),
    evidence_name="naive over synchronised clock",
    requirement="Time an operation on a device that works asynchronously.",
    mechanism=(
        "A launch puts work into a stream and returns. A naive clock reads the launch; the wait turns up at the next call that "
        "needs the value, often an innocent .item(). Events are recorded in the stream and time the device itself."
    ),
    proof=(
        "Five numbers side by side: naive clock, synchronised clock, events, benchmark.Timer, profiler. On a CPU they agree, and "
        "the missing ones say why. On a device the naive one is far below the others."
    ),
    recovery="Synchronise before both readings of a clock, or use events or benchmark.Timer. Below some 100 µs Python is part of what you time.",
)

_FIRST = Lesson(
    row="H4",
    title="the first step is not a step",
    params=Params(model="cnn", layers=2, width=16, batch=4),
    question="A new model takes its first step in a warm process. Against the later ones, it takes",
    choices={
        "about as long": "The optimizer has no state yet, kernels are not picked, memory is not there.",
        "clearly longer": "It creates the optimizer's state, picks kernels and fills the allocator.",
        "less": "Everything that later steps do, it does too.",
    },
    answer=lambda r: _between(first_ratio(r), 0.9, 1.15, ("less", "about as long", "clearly longer")),
    evidence=first_ratio,
    evidence_name="first over median step",
    requirement="Say what a benchmark has to leave out, and what a profile is for.",
    mechanism=(
        "First steps pay once: imports, kernel choice, state, allocation, compilation. A benchmark repeats the rest and gives a "
        "median and a spread, without instruments. A profile says where the time goes and costs time itself."
    ),
    proof="The first bar stands apart from the others; the warm-up bars fall to the bare ones. It would be wrong if the first were like the rest.",
    recovery="Run some steps first, take the median of many, say the spread. Profile with a schedule that has wait and warmup.",
)

_OVERHEAD = Lesson(
    row="H4",
    title="what looking costs",
    params=Params(model="mlp", layers=8, width=32, batch=4, optimizer="sgd", steps=10),
    question="A step of some hundred tiny operators is profiled with shapes and memory. It takes",
    choices={
        "as long as without": "Each event is written down, and each of these operators takes only microseconds.",
        "10 % to 3 times as long": "About a microsecond for each event, beside operators of a few microseconds.",
        "more than 3 times as long": "That is the price of stacks or of tracing Python; shapes and memory cost less.",
    },
    answer=lambda r: _between(
        r.overhead.ratio, 1.1, 3, ("as long as without", "10 % to 3 times as long", "more than 3 times as long")
    ),
    evidence=lambda r: r.overhead.ratio,
    evidence_name="profiled over bare step",
    requirement="Say how far a profile may be trusted.",
    mechanism="The profiler writes an event for every operator, range and allocation. The cost is by event, so short operators suffer most.",
    proof="Bare and profiled steps take turns in this run. The ratio of their medians is the overhead; it falls towards 1 when operators get larger.",
    recovery="Compare settings by the bare step. Use the profile for shares and order; turn off what you do not read (stacks, memory, shapes).",
)

_NESTED = Lesson(
    row="H4",
    title="a profiler inside a profiler",
    params=Params(model="mlp", layers=1, width=64, trap="nested"),
    question="Two profilers, one inside the other. How many events does the outer one have at the end?",
    choices={
        "its own and those of the inner one": "There is one profiler in a process, not one for each object.",
        "its own, without those of the inner one": "Its own are gone too: the inner one took over and ended the recording.",
        "none": "Starting the inner one takes the recording away from the outer one, without an error.",
    },
    answer=lambda r: (
        "none" if reading(r, "events of the outer", "as written") == 0 else "its own and those of the inner one"
    ),
    evidence=lambda r: reading(r, "events of the outer", "as written"),
    evidence_name="events of the outer profiler",
    requirement="Say why a profile can be empty although the code ran.",
    mechanism="Recording is global to the process. A second start replaces the first; leaving the inner context ends it for both.",
    proof="The outer profile has 0 events, the inner one has its own. With record_function instead, the outer one has all.",
    recovery="One profiler around everything, record_function inside. In a library, check whether one is running before you start one.",
)

_SLOW = Lesson(
    row="H8",
    title="busy and slow",
    params=Params(model="mlp", layers=4, width=1024, batch=1, optimizer="sgd", optimizer_impl="fused"),
    question="One sample through layers of 1024 x 1024. Operators run nearly all the time. How much of the arithmetic is reached?",
    choices={
        "less than 30 %": "A product with one row reads each weight once for two operations: memory sets the pace.",
        "30 to 70 %": "Count bytes: 4 for each weight, read for two operations.",
        "more than 70 %": "That needs large matrices on both sides, so that each weight is used many times.",
    },
    answer=lambda r: _between(arithmetic_share(r), 0.3, 0.7, ("less than 30 %", "30 to 70 %", "more than 70 %")),
    evidence=arithmetic_share,
    evidence_name="share of the arithmetic that this device can do",
    requirement="Explain how a device can be fully used and slow at once.",
    mechanism=(
        "Utilization says that something was running, not how well. The ceiling is the lower of arithmetic and traffic: FLOP/s "
        "at most intensity times bytes/s, where intensity is FLOP per byte. A product with one row has 0.5 FLOP per byte."
    ),
    proof=(
        "Operators are busy for most of the step, and Ceilings shows products near the traffic ceiling and far from the "
        "arithmetic one. With batch 64 the same products reach several times the FLOP/s."
    ),
    recovery="Raise the batch, fuse elementwise chains, use a smaller number format. Report FLOP/s and bytes/s beside utilization.",
)

_OWN = Lesson(
    row="H2",
    title="your own model",
    params=Params(model="own", code=OWN_PROGRAM),
    question="Three small layers, Adam in a for-loop. Which part of the step takes longest?",
    choices={
        "forward": "Three products, two tanh, one sum: the fewest calls of the three.",
        "backward": "About twice the calls of the forward.",
        "optimizer": "Six parameters, some ten operators each.",
    },
    answer=lambda r: largest_part(r),
    evidence=lambda r: part_share(r, "optimizer_s"),
    evidence_name="share of the optimizer",
    requirement="Profile a model of your own. Assume that it fits and trains.",
    mechanism="The program defines model and batch, and perhaps loss(model, batch). The step around it is the one of the other presets.",
    proof="The operator table names the lines of your program, also for the backward operators of these lines.",
    recovery="If a line has many short calls, write it as one operator. If one call is long, look at its shapes and at Ceilings.",
)

lessons = (_BACKWARD, _SELF_TOTAL, _HOST, _INPUT, _OWN, _CLOCKS, _FIRST, _OVERHEAD, _NESTED, _SLOW)

_HEADLINES = {
    _BACKWARD.title: 'fastest["backward"] / fastest["forward"]',
    _SELF_TOTAL.title: 'result["sum_of_totals_over_sum_of_self_ratio"]',
    _HOST.title: 'fastest["optimizer"] / fastest["step"]',
    _INPUT.title: 'fastest["data_loading"] / fastest["step"]',
    _OWN.title: 'fastest["optimizer"] / fastest["step"]',
    _CLOCKS.title: 'result["naive_clock_s"] / result["synchronised_clock_s"]',
    _FIRST.title: "first_s / median(bare)",
    _OVERHEAD.title: "median(profiled) / median(bare)",
    _NESTED.title: 'as_written["events_of_the_outer"]',
    _SLOW.title: "reached_share()",
}


def headline_of(params: Params) -> str:
    """The expression that a script prints last: a preset's evidence, else the median of the bare steps in seconds."""
    title = next((lesson.title for lesson in lessons if lesson.params == params), None)
    return _HEADLINES[title] if title else "result" if params.trap != "none" else "median(bare)"


_POINTS = {
    _BACKWARD.title: "backward",
    _HOST.title: "tiny",
    _INPUT.title: "input",
    _OWN.title: "largest part",
    _FIRST.title: "first step",
    _OVERHEAD.title: "overhead",
    _SLOW.title: "busy and slow",
}


def point_of(params: Params) -> str:
    """Key of the finding that is the point of a preset; empty for other settings."""
    title = next((lesson.title for lesson in lessons if lesson.params == params), "")
    return _POINTS.get(title, "")


def _between(value: float, low: float, high: float, names: tuple[str, str, str]) -> str:
    return names[0] if value < low else names[1] if value <= high else names[2]


def _totals(result: Result) -> float:
    return reading(result, "sum of totals over sum of self", "repaired")


def _clock_ratio(result: Result) -> float:
    return reading(result, "naive clock", "repaired") / reading(result, "synchronised clock", "repaired")
