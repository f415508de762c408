"""What knows the Redis protocol: client, scripts, the embedded server, the proof of durability."""
