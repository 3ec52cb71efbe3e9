"""What Lambda starts, one module for each function. Importing one reads the environment and sends nothing."""
