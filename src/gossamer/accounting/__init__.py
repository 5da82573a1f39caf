"""What happened (events, ledger) and what it costs (proven, claimed, calibrate); this file stays light."""
