"""RobustClassifier: logistic regressions from plain to bounded influence, chosen by robust validation."""
