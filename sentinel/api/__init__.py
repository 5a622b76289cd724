"""What the daemon says and hears over HTTP."""
