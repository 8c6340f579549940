"""The program that works inside a workspace. Its modules need Python 3.9 and the standard library, nothing else."""
