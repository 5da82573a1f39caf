"""What a run has trained, ready to be used: its models, what they take and give, and a card that goes with them."""
