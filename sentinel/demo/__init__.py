"""`sentinel demo`: a real daemon, a real trainer, real faults, and a verdict read from the REST API."""
