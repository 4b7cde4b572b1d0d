"""The parts of the sandbox: what is refused (`seccomp`, `landlock`), who refuses it (`child`) and who watches (`parent`)."""
