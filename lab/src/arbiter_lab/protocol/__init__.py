"""The evaluation protocol: inference, folds, stress, monitors and the record of a run."""
