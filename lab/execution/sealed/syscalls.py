"""System call numbers, and which of them a sealed process keeps.

Numbers from ``arch/x86/entry/syscalls/syscall_64.tbl`` of Linux. Another architecture needs its own table and its own
run of the tests; without one, visitors' programs stay off.
"""

from __future__ import annotations

AUDIT_ARCH = {"x86_64": 0xC000003E}
"""``AUDIT_ARCH_*`` of ``linux/audit.h``, by machine name."""

_X86_64 = """
read 0 write 1 close 3 stat 4 fstat 5 lstat 6 poll 7 lseek 8 mmap 9 mprotect 10 munmap 11 brk 12 rt_sigaction 13
rt_sigprocmask 14 rt_sigreturn 15 ioctl 16 pread64 17 readv 19 writev 20 access 21 select 23 sched_yield 24 mremap 25
msync 26 mincore 27 madvise 28 dup 32 nanosleep 35 getpid 39 clone 56 execve 59 exit 60 uname 63 fcntl 72 getcwd 79
readlink 89 gettimeofday 96 getrlimit 97 getrusage 98 sysinfo 99 times 100 ptrace 101 getuid 102 getgid 104 geteuid 107
getegid 108 getppid 110 sigaltstack 131 pivot_root 155 prctl 157 chroot 161 mount 165 umount2 166 reboot 169
init_module 175 gettid 186 futex 202 sched_setaffinity 203 sched_getaffinity 204 getdents64 217 restart_syscall 219
clock_gettime 228 clock_getres 229 clock_nanosleep 230 exit_group 231 epoll_wait 232 epoll_ctl 233 tgkill 234 mbind 237
set_mempolicy 238 get_mempolicy 239 kexec_load 246 add_key 248 keyctl 250 openat 257 newfstatat 262 pselect6 270
ppoll 271 unshare 272 set_robust_list 273 eventfd2 290 epoll_create1 291 pipe2 293 perf_event_open 298 prlimit64 302
open_by_handle_at 304 setns 308 getcpu 309 process_vm_readv 310 process_vm_writev 311 finit_module 313 getrandom 318
memfd_create 319 bpf 321 execveat 322 userfaultfd 323 membarrier 324 mlock2 325 statx 332 rseq 334 io_uring_setup 425
clone3 435 pidfd_getfd 438
"""


def _names(text: str) -> list[str]:
    return text.split()


def _table(text: str) -> dict[str, int]:
    words = text.split()
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))


NUMBERS = {"x86_64": _table(_X86_64)}

ALLOWED = _names("""
read write close fstat lseek mmap munmap mprotect mremap madvise brk futex rt_sigaction rt_sigprocmask rt_sigreturn
sigaltstack exit exit_group gettid getpid getppid clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday
sched_yield sched_getaffinity getrandom poll select pselect6 ppoll sysinfo uname getrusage getrlimit set_robust_list
rseq membarrier restart_syscall getuid geteuid getgid getegid getcpu pread64 readv writev times dup
""")
"""Python and torch on the CPU, warmed up, need these and no others: none takes a path, opens a socket or makes a process."""

ALLOWED_ON_GPU = _names("""
ioctl openat newfstatat stat lstat statx readlink getdents64 getcwd access memfd_create eventfd2 pipe2 epoll_create1
epoll_ctl epoll_wait mlock2 get_mempolicy mbind set_mempolicy sched_setaffinity mincore msync
""")
"""The CUDA driver needs these too. Paths are then Landlock's business."""

KILLED = _names("""
execve execveat ptrace process_vm_readv process_vm_writev mount umount2 pivot_root chroot unshare setns bpf
perf_event_open userfaultfd io_uring_setup keyctl add_key init_module finit_module kexec_load reboot open_by_handle_at
pidfd_getfd
""")
"""No honest program makes these: the first one ends the process."""
