"""Where records come from (checked), data sets, and their partition over nodes."""
