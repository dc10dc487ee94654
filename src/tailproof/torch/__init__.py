"""Networks under heavy tails: robust regression, and divide and conquer for PyTorch modules.

Needs ``pip install 'tailproof[torch]'``. ``tailproof.torch`` is loaded on first use.
"""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401
except ImportError as missing:
    raise ImportError(
        f"tailproof.torch needs {missing.name}: pip install 'tailproof[torch]' brings it"
    ) from None

from tailproof.reports.round_report import RoundReport
from tailproof.torch.candidates import Candidates, Selected
from tailproof.torch.divide_and_conquer import TorchDCClassifier, TorchDCRegressor
from tailproof.torch.robust_net import BlendedNet, RobustNet, fit_robust_net
from tailproof.torch.robust_net_regressor import RobustNetRegressor
from tailproof.torch.robust_validation import TorchRVClassifier, TorchRVRegressor
from tailproof.torch.training_run import EpochRecord

__all__ = [
    "BlendedNet",
    "Candidates",
    "EpochRecord",
    "RobustNet",
    "RobustNetRegressor",
    "RoundReport",
    "Selected",
    "TorchDCClassifier",
    "TorchDCRegressor",
    "TorchRVClassifier",
    "TorchRVRegressor",
    "fit_robust_net",
]
