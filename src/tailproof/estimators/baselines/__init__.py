"""The full-gradient methods the paper compares with: ERM-GD, RGD-MoM, RGD-M, RGD-Lec."""
