"""The benchmarks: what a step costs on Temporal, beside a bare loop that does the same work. No part of the wheel."""
