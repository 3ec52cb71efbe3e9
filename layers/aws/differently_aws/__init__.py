"""How the functions live on AWS: what they are told, whom they send messages to, how they log, count and stream."""
