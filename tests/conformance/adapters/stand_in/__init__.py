"""What every stand-in of a service is made of: a threaded socket server, and what can befall a request on its way."""
