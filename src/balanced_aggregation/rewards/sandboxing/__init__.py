"""The sandboxes: one for a program (`parent`, `child`, `watch`), one for a whole command (`confine`, `warden`).

What is refused stands in `landlock`, `seccomp` (all but a list) and `denied_calls` (a list); `rights` gives it up.
"""
