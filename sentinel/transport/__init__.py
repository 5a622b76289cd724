"""From a sender to the daemon: batches over HTTP, in bounded memory; stdlib only, so that any training image has it."""
