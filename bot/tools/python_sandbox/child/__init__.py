"""What runs inside the sandbox's process: standard library only, imported by the sandbox's own interpreter."""
