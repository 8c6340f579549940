"""The checks of `holdfast doctor`: some modules gather facts, others judge them without asking anybody."""
