"""The sandbox: what is refused (`seccomp`, `landlock`), who refuses it (`child`), who watches (`parent`, `watch`)."""
