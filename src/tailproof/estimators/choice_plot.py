"""``plot`` of the estimators that choose among candidates."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import check_is_fitted

from tailproof.reports.choice_report import RobustReport


class ChoicePlot:
    """An estimator whose ``report_`` has the candidates side by side."""

    report_: RobustReport

    def plot(self, ax: Any = None) -> Any:
        """Draw every candidate's paired difference to the chosen one (needs matplotlib).

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; new axes without it.

        Returns
        -------
        ax
        """
        check_is_fitted(self)
        return self.report_.plot(ax)
