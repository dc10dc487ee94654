"""Every choice of RobustRegressor that is a number, in one record, with the reason for its value.

Numbers that only keep arithmetic finite (1e-300 and the like) stay where they are used. A study varies a
choice without editing modules::

    class Sharper(RobustRegressor):
        _tuning = replace(DEFAULT, blend_sharpness=8.0)
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """What a RobustRegressor does where the data leave it a choice.

    Attributes
    ----------
    least_rows : int
        Below so many rows nothing is held out: a fold would have fewer than four.
    folds, folds_of_few_rows : int
        Five folds leave 80% of the rows to fit on. Small narrow tables get ten, since fits on 80% of few rows
        are noticeably worse than those on all.
    few_rows, few_columns : int
        What counts as a small narrow table: twice the folds are affordable there.
    compared_rows, compared_rows_per_column : int
        Rows to choose by, where there are more; the chosen candidate is fitted on all. Standard errors of
        paired differences on 100,000 rows are far below the gain of any choice.
    judged_rows : int
        The same for levels alone, in memory: all rows judge their bias afterwards, and what else separates
        two levels shows no better in more rows (their risks and the errors of these both fall like 1/n).
    surprise : float
        Where some target is so many times as far as the farthest of the few rows, these have not seen what
        matters, and four times as many choose; where these have not either, ``compared_rows``.
    gram_columns : int
        With more columns a Gram matrix costs more than it is worth: products with sparse rows instead, and
        SGD alone for dense ones.
    sparse_columns, sparse_share : int, float
        With more columns, and at most such a share of entries that are not zero, products with sparse rows
        are faster than dense ones, unless all rows stay in the cache. With fewer columns coefficients have
        intervals, which take a Gram matrix.
    all_folds_rows : int
        Above, a candidate that is fitted anew for every fold is held out once, to save time.
    quick_sgd_passes : int
        Passes of DC-SGD above ``all_folds_rows``: what the theorem needs, and quick.

    tile_bytes : int
        Scaled rows at a time: they stay in the processor's cache while all levels use them.
    ready_bytes, ready_bytes_of_wide : int
        Up to here all rows are scaled once and kept. With more than ``hessian_columns`` columns that saves
        most of the time, since Hessians need not be formed; with fewer a copy costs more than it saves.
    cached_bytes : int
        Whitened rows in single precision that stay in the processor's cache, or nearly: there a few fits at a
        time take their steps, all of them compiled. With more, products with all fits at once are as fast.
    collinear : float
        Eigenvalues of the Gram matrix below this share of the largest belong to collinear columns.
    glitch_scales, glitch_gap : float
        A glitch in rows out of core is so many robust scales away, and so many times as far as the farthest
        value of the sample.
    glitch_error : float
        Probability that honest features, whatever their number, show such a gap by chance, if their tails are
        as heavy as the values below the gap say.

    strongest_share : float
        Share of the rows beyond the smallest truncation τ.
    shares, shares_with_ridges : tuple of float
        Shares of the rows that the levels truncate, without ridge penalties and with several.
    bisquares, bisquares_with_ridges : tuple of float
        Tukey's ψ(r) = r(1 − (r/τ)²)² with τ so many robust scales: 4.7 has 95% efficiency at the normal law.
    smallest_level_rows : int
        A level must truncate at least so many rows, or it is least squares by another name.
    truncated_curvature : float
        What rows beyond τ count for in a Hessian: it stays regular, and Newton's steps stay fast.
    passes : int
        Newton steps at most.
    polishing_identity, polishing_log : int
        Steps on all rows from the solution of a large sample of them: one full and the rest with its Hessian.
    polished : float
        Share of the standard error of a fit that these steps may leave.
    tolerance : float
        Of a step, against the size of the solution; the error left is of the order of its square.
    loose_tolerance : float
        The same for bisquare levels of few rows: far below the error of such a fit.
    bisquare_steps : int
        Of bisquare levels of few rows, at most. Eight are no better beyond chance in 27 designs, and change
        the mean excess risk of 26 of them by less than 0.5%.
    contraction : float
        While each step is at most this share of the one before, Hessians are used again.
    start_rows, start_rows_per_column : int
        Rows for the robust start.
    start_rounds : int
        Reweightings of the robust start.
    corrections : int
        Steps with the same Hessian that make up for leaving a fold out by one Newton step, if rows are few.
    searches : int
        The same with more than ``narrow_columns`` columns: Newton steps, each as long as is best.
        Eight leave next to nothing from 1.5 rows a parameter on.
    corrected : float
        Share of the first gradient of such a level that is left as it is: far below the noise of its losses.
    one_step_rows : int
        Rows a parameter from which one Newton step leaves a fold out with no correction, or, where steps
        are compiled, Tukey's levels converge next to where those of all rows do. More than ``ridge_below``,
        so that the time of a fit falls in two small steps and not in a large one.
    ridge_below, ridge_below_of_log_link : int
        Rows a parameter below which fits are penalised too. exp makes more of a slope that is too long.
    wide_columns, wide_rows : int
        With more columns Gram matrices are expensive: a single penalty, unless rows a parameter are fewer.
    lasso_columns, lasso_below : int
        With more columns, and fewer rows a parameter, fits with an l1 penalty join the path: perhaps few
        columns matter.
    lasso_shares : tuple of float
        Shares of the rows that these truncate.
    lasso_penalties : tuple of float
        Shares of the least penalty at which no column is left.
    no_plain_fit_below : float
        Rows a parameter below which there are penalised fits only.
    ridges : tuple of float
        Penalties, in parameters a row: the scale at which a penalty and the noise of the slopes balance.
    middle_ridge : int
        Which of them is taken where there is to be one.
    fold_damping : float
        Ridge towards zero, against the information of all rows, for what only the held-out fold has seen.
    vanishing_damping : float
        The same for Newton steps of the log link, where the information itself can vanish.
    gram_bytes : int
        Memory for the Gram matrices of all levels.
    hessian_columns : int
        With more columns Hessians are applied, not formed: about where the products cost the same, if rows
        are many beside columns; with fewer rows from fewer columns on.
    narrow_columns : int
        Up to so many, with the intercept's, a compiled pass over rows takes all levels: the processor then
        does more than matrix products of so few columns would let it.
    cg_tolerance, cg_steps : float, int
        Of conjugate gradients, against the right-hand side: Newton's method corrects what is left.
    light_ridge : float
        The smallest penalty below ``ridge_below`` rows a parameter, in parameters a row: directions that a
        fold hardly sees (rare categories) stay bounded, and others do not notice.
    recentre_rows : int
        Enough for the intercept of a fold's fit.

    scale_blocks : int
        Blocks of the median of means behind the standard error of a paired difference.
    evidence_rows : int
        Rows a parameter below which residuals are too small for risks to be predicted from them.
    second_fit_rows : int
        Rows a parameter below which slopes are not fitted once more by what residuals tell of the noise: with
        27 of them such fits made splits of injury claims worse by up to 12%.
    conflict_tolerated, conflict_certain : float
        Normal scores of the distance between the slopes of two levels: up to the first there is no sign that
        noise depends on X, from the second on it does.
    rare_tolerated, rare_certain : float
        The same where few rows are informative about the mean (claims): risks predicted from the others
        promise so much that hardly any bias may be overlooked.
    prediction_share : float
        How much the predicted difference of two risks counts, beside the held-out one, where there is no such
        sign.
    veto_mean, veto_fold : float
        A candidate is out if the plain mean of its held-out losses is so many times the least, over all rows
        or in its worst fold.
    blend_sharpness : float
        The weight of a candidate falls by a factor e to this power for each standard error that it is worse.
    convinced : float
        Standard errors by which the best must beat least squares to leave it no weight of its own.
    scarce_rows, ample_rows, too_many_rows : tuple of float
        Rows a parameter between which the choice has to be less and less sure to stand beside ridge
        regression. Where they are scarce, plain means of held-out losses have to agree with robust ones;
        where they are ample, there is more to choose by than these losses, and plain means must speak against
        it; and from many rows on there is no ridge regression. In between one rule fades into the next.
    surely_better, surely_better_if_ample : tuple of float
        Standard errors on held-out rows between which ridge regression leaves the model to the choice.
    carried_away : tuple of float
        Typical errors of ridge regression over those of the choice between which it loses its part: few far
        rows have spoilt it. With 300 rows of real sets it was at most 3.
    ridge_cells : int
        Numbers of a table, zeros as well, beyond which it is not fitted: there are four copies of them.
    negligible : float
        Shares of a blend below this are dropped, so that fewer levels are fitted on all rows.

    inference_rows : int
        Rows for covariances of coefficients: their standard errors are then known to a percent or two.
    inference_rows_per_column : int
        With fewer, coefficients without a penalty are not known well enough for an interval.
    inference_columns : int
        With more, a covariance takes more memory than the model is worth.
    inference_choice : float
        Factor of standard errors of truncated fits: a level that is chosen for its small variance has one
        that is estimated too small. Without it intervals at 0.95 covered 0.92 to 0.945.
    """

    least_rows: int = 20
    folds: int = 5
    folds_of_few_rows: int = 10
    few_rows: int = 2_000
    few_columns: int = 50
    compared_rows: int = 100_000
    compared_rows_per_column: int = 100
    judged_rows: int = 5_000
    surprise: float = 10.0
    gram_columns: int = 3_000
    sparse_columns: int = 1_000
    sparse_share: float = 0.05
    all_folds_rows: int = 10_000
    quick_sgd_passes: int = 2

    tile_bytes: int = 2**21
    ready_bytes: int = 2**26
    ready_bytes_of_wide: int = 2**29
    cached_bytes: int = 2**22
    collinear: float = 1e-12
    glitch_scales: float = 100.0
    glitch_gap: float = 30.0
    glitch_error: float = 0.005

    strongest_share: float = 0.25
    shares: tuple[float, ...] = (0.75, 0.5, 0.25, 0.1, 0.05, 0.01, 0.002, 0.0004, 0.00008)
    shares_with_ridges: tuple[float, ...] = (0.25, 0.05)
    bisquares: tuple[float, ...] = (4.7, 10.0)
    bisquares_with_ridges: tuple[float, ...] = (4.7,)
    smallest_level_rows: int = 2
    truncated_curvature: float = 0.01
    passes: int = 100
    polishing_identity: int = 4
    polishing_log: int = 5
    polished: float = 0.0003
    tolerance: float = 1e-5
    loose_tolerance: float = 1e-3
    bisquare_steps: int = 4
    contraction: float = 0.2
    start_rows: int = 3_000
    start_rows_per_column: int = 30
    start_rounds: int = 30
    corrections: int = 3
    searches: int = 8
    corrected: float = 0.003
    one_step_rows: int = 60
    ridge_below: int = 50
    ridge_below_of_log_link: int = 100
    wide_columns: int = 50
    wide_rows: int = 10
    lasso_columns: int = 50
    lasso_below: int = 3
    lasso_shares: tuple[float, ...] = (0.25, 0.0)
    lasso_penalties: tuple[float, ...] = (0.7, 0.5, 0.35, 0.25, 0.15, 0.08)
    no_plain_fit_below: float = 1.15
    ridges: tuple[float, ...] = (0.3, 3.0, 30.0)
    middle_ridge: int = 1
    fold_damping: float = 1e-4
    vanishing_damping: float = 1e-6
    gram_bytes: int = 2**28
    hessian_columns: int = 100
    narrow_columns: int = 24
    cg_tolerance: float = 0.03
    cg_steps: int = 50
    light_ridge: float = 0.01
    recentre_rows: int = 10_000

    scale_blocks: int = 9
    evidence_rows: int = 20
    second_fit_rows: int = 30
    conflict_tolerated: float = 2.5
    conflict_certain: float = 3.5
    rare_tolerated: float = 0.5
    rare_certain: float = 1.5
    prediction_share: float = 0.9
    veto_mean: float = 1.25
    veto_fold: float = 2.0
    blend_sharpness: float = 4.0
    convinced: float = 1.0
    scarce_rows: tuple[float, float] = (2.0, 4.0)
    ample_rows: tuple[float, float] = (15.0, 30.0)
    too_many_rows: tuple[float, float] = (35.0, 50.0)  # up to ridge_below, where penalties end
    surely_better: tuple[float, float] = (0.0, 2.0)
    surely_better_if_ample: tuple[float, float] = (-1.5, 0.0)
    carried_away: tuple[float, float] = (1.5, 3.0)
    ridge_cells: int = 1 << 24
    negligible: float = 1e-3

    inference_rows: int = 8_000
    inference_rows_per_column: int = 2
    inference_columns: int = 1_000
    inference_choice: float = 1.05


DEFAULT = Tuning()
