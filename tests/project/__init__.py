"""What the project demands of itself: its tools' and its architecture's rules."""
