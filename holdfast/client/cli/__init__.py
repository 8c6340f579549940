"""The command line: `holdfast dev | worker | run | stop | show | list`."""
