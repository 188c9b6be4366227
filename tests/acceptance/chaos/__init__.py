"""Each fault of the matrix, against each kind of relay, with what it did to records."""
