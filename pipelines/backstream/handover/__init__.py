"""Hand over a recorded stream to a live job."""
