"""Attack a run and print what an adversary can show. It stands above `build`, beside `compare`, below `cli`."""
