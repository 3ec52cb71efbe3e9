"""One module or folder for each kind of backend; none of them imports another."""
