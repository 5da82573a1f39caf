"""Many runs: compare, reproduce, tune, audit. All of them enter by `run`."""
