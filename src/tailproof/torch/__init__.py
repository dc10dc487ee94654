"""k networks trained as one: robust divide and conquer and robust validation for PyTorch modules.

Needs ``pip install 'tailproof[torch]'``. ``tailproof.torch`` is loaded on first use.
"""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401
except ImportError as missing:
    raise ImportError(
        f"tailproof.torch needs {missing.name}: pip install 'tailproof[torch]' brings it"
    ) from None

from tailproof.torch.candidates import Candidates, Selected
from tailproof.torch.estimators import TorchDCClassifier, TorchRVClassifier, TorchRVRegressor

__all__ = ["Candidates", "Selected", "TorchDCClassifier", "TorchRVClassifier", "TorchRVRegressor"]
