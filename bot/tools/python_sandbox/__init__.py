"""Python that people and models may run: locked in by the kernel, with files in and out (docs/sandbox.md)."""
