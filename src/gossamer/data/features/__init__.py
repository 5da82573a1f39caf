"""Fixed features: functions of one record and of public constants, so that no training record sees another."""
