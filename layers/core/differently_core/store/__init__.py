"""State, behind one port: DynamoDB in production, memory in simulation; conditional writes only."""
