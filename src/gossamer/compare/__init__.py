"""Many runs at once, and the tables and plots made of them. It stands above `build` and `experiment`, below `cli`."""
