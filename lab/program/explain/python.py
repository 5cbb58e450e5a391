"""Errors of Python and of what a program may do here."""

from __future__ import annotations

import re
import types
from typing import Any

from lab.program.explain.row import Row
from lab.records.program import Ended

WORKERS = "DataLoader was starting a worker process"
PROCESS = "another process was being started"
EVENT_LOOP = "asyncio was opening its event loop"
NO_PROGRAM = "There is no program yet."
_USAGE = "argparse: "


def exit_message(error: SystemExit) -> str:
    """What an exit says: what argparse missed, the text that was handed over, or the status."""
    missed = _refused_by_argparse(error.__traceback__)
    if missed:
        return f"{_USAGE}{missed}"
    if error.code is None or isinstance(error.code, int):
        return f"exit status {int(error.code or 0)}"
    return str(error.code)


def _refused_by_argparse(trace: types.TracebackType | None) -> str:
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_name == "error" and code.co_filename.endswith("argparse.py"):
            return str(trace.tb_frame.f_locals.get("message", ""))
        trace = trace.tb_next
    return ""


def _read_at_first_use(ended: Ended, record: Any) -> tuple[str, str] | None:
    name = re.search(r"No module named '([\w.]+)'", ended.message)
    top = name[1].split(".")[0] if name else "name"
    return (
        "This part of the package is read from a file on first use, and a program here has no files; or the package has no such part.",
        f"Whoever runs the lab can have it read before: LAB_PROGRAM_PACKAGES={name[1] if name else 'name.part'}, or {top}.* for all parts.",
    )


def _exit(ended: Ended, record: Any) -> tuple[str, str]:
    message = ended.message
    rest = "A program ends after its last line by itself: leave the exit out where the lines after it are to run."
    if message.startswith(_USAGE):
        missing = re.search(r"arguments are required: (.+)", message)
        needs = f"needs {missing.group(1)}" if missing else "does not take what it was given"
        return (
            f"A program here is started without arguments, and its argument parser {needs}: argparse printed how it is used and ended the program.",
            'Give each required argument a default, or write the values into the call: parse_args(["--name", "value"]).',
        )
    if message == "exit status 0":
        return "The program ended itself here, and said that all is well (exit status 0).", rest
    if message.startswith("exit status "):
        return f"The program ended itself here and reported a failure: {message}, where 0 stands for success.", rest
    return "The program ended itself here with this message, which stands for a failure (exit status 1).", rest


PYTHON = (
    Row(
        r"^RecursionError",
        "A function called itself too deeply. Tools that walk a graph recursively fail like this on long chains.",
        "Walk with a loop and a list of what is left to do.",
    ),
    Row(
        r"^ModuleNotFoundError: No module named 'torch\.",
        "This part of torch is read from a file on first use, and a program here has no files. torch.compile needs files and a compiler.",
        "Leave out what compiles, exports or starts workers; or run the lab with LAB_TYPED_CODE=trusted on your own machine.",
    ),
    Row(
        r"^(ModuleNotFoundError: No module named '\w+\.|ImportError: cannot import name)",
        "This part of the package is read from a file on first use, and a program here has no files; or the package has no such part.",
        deeper=_read_at_first_use,
    ),
    Row(
        WORKERS,
        "Workers of a DataLoader are processes of their own, and a program here has one process.",
        "Set num_workers=0: the data is then loaded in this process.",
    ),
    Row(
        PROCESS,
        "A program here has one process: multiprocessing, process pools and mp.spawn cannot start others.",
        "Call the function in a plain loop. Threads work: concurrent.futures.ThreadPoolExecutor.",
    ),
    Row(
        EVENT_LOOP,
        "The event loop of asyncio opens a pair of sockets, and a program here has no sockets.",
        "Call the steps one after the other, without async; time.sleep waits as well.",
    ),
    Row(
        r"environment variable MASTER_ADDR expected|torch\.distributed",
        "A process group connects several processes over the network, and a program here has neither.",
        "Leave init_process_group out, and run the model itself without a wrapper such as DistributedDataParallel.",
    ),
    Row(
        r"can't start new thread",
        "A program here may have few threads, and an executor or a pool asked for more.",
        "Use fewer workers, or do the work in a plain loop.",
    ),
    Row(
        r"cannot set number of interop threads",
        "The lab has set the number of threads before the program began; torch takes it once.",
        "Leave out this line.",
    ),
    Row(
        r"Torch not compiled with CUDA enabled|No CUDA GPUs are available|Found no NVIDIA driver",
        "This run has the CPU alone, and the program asks for CUDA by name.",
        'Write device = "cuda" if torch.cuda.is_available() else "cpu", and use device everywhere.',
    ),
    Row(
        r"Parent directory .* does not exist|open file failed",
        "A program here has no files, so nothing can be saved or loaded.",
        "Keep it in memory: a variable, or copy.deepcopy(module.state_dict()).",
    ),
    Row(
        r"^(PermissionError|OSError|BlockingIOError|NotADirectoryError|FileNotFoundError: .*[Nn]o usable temporary)",
        "A program here has no files, no network and no other processes: the operating system refuses them.",
        "Keep everything in memory: make the data in the program.",
    ),
    Row(
        f"^OwnModelError: {NO_PROGRAM}",
        "A program for this page defines model and batch, and where the default does not fit, loss(model, batch).",
        "Type it into the editor and press Run, or begin with the preset that measures a model of your own.",
    ),
    Row(r"^OwnModelError", "The program ran. What it left does not make a measurement yet."),
    Row(
        r"^TimeLimit",
        "The program did not come to an end in time.",
        "Look at the loop on this line; use fewer steps, a smaller model or smaller tensors.",
    ),
    Row(
        r"^MemoryLimit",
        "The program asked for more memory than one run may use.",
        "Use smaller tensors, a smaller model or batch; look for a list that grows in a loop.",
    ),
    Row(r"^KeyboardInterrupt", "The program raised this itself: nobody pressed a key.", "Leave it out."),
    Row(r"^OutputLimit", "What was printed up to here is kept.", "Print less: every hundredth step, or a summary."),
    Row(r"^SystemExit", "The program ended itself.", deeper=_exit),
    Row(
        r"^Refused: The program (has more than|nests|is nested)",
        "",
        "Put what repeats into a loop or a function, and deep expressions into several lines.",
    ),
    Row(r"^Refused: open\(\)", "", "Keep everything in memory: make the data in the program, print what it finds."),
    Row(r"^Refused", "", "The names torch, nn, F and math are there without import."),
    Row(
        r"^(SyntaxError|IndentationError|TabError)",
        "Python cannot read the program at this place.",
        "Look at the mark, and at the end of the line before it.",
    ),
    Row(
        r"^(NameError|UnboundLocalError)",
        "The name is not defined at this point.",
        "Names torch, nn, F and math are given; everything else must be assigned first.",
    ),
    Row(
        r"'(method|builtin_function_or_method|function)' object (has no attribute|is not)",
        "A method stands without its brackets: it is named and not called.",
        "Add the brackets: model.parameters(), loss.mean().",
    ),
    Row(
        r"'(float|int)' object has no attribute '(backward|detach|sum|mean|item)'",
        "This is a plain number: item() and Python's arithmetic give numbers, which have no history.",
        "Keep the tensor on the way to the loss, and use item() only for printing.",
    ),
    Row(
        r"(mean|sum|std|var|prod|max|min)\(\) got an unexpected keyword argument 'axis'",
        "A function of NumPy hands the work to the tensor's own method, in NumPy's words for the arguments.",
        "Use torch: torch.mean(t), or t.detach().numpy() for numbers that need no gradient.",
    ),
    Row(
        r"^AttributeError: 'tuple' object has no attribute",
        "The call before it returned several results together, and only one of them is meant. Recurrent layers and attention "
        "return the output and something else.",
        "Take them apart: out, state = layer(x).",
    ),
    Row(
        r"^TypeError: .*forward\(\) (missing|takes|got an unexpected)",
        "The arguments of the call do not fit the parameters of the module's forward.",
        "Compare them with the line that begins def forward(self, ...).",
    ),
)
