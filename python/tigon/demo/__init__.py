"""`make demo`: a small real model, fine-tuned in minutes, eager PyTorch beside Tigon."""
