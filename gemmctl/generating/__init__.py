"""Problem lists made from a few options: layers of models, batches, random shapes, peers' lists."""
