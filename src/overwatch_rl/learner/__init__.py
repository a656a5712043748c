"""The learner service: experience in, weights and checkpoints out."""
