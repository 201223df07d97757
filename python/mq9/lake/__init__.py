"""From the exported messages and events to the tables people ask for, in a batch or a stream."""
