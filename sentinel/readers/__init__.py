"""Foreign training logs to step reports: what `sentinel scan` reads."""
