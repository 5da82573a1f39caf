"""How a kind and its options are declared, checked and listed."""
