"""How numbers become claims: inference, folds, stress, monitors and the record of a run."""
