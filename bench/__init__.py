"""Every figure that the documents name; `make bench` runs all of it and writes bench/results."""
