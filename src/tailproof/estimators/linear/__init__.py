"""DC-SGD and RV-SGD for linear models."""
