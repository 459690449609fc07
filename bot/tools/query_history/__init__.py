"""What the stored readings of the counters tell over time: a shape's trend, and two windows side by side."""
