"""The plan of the house: which floor stands on which, and the layers inside each of them."""

from __future__ import annotations

# From low to high. A floor imports only floors before it. A floor is a file or a folder.
LIBRARY = [
    "forked",
    "conventions",
    "extras",
    "compiled",
    "files",
    "values",
    "exclusions",
    "forwards",
    "inputs",
    "pricing",
    "quotes",
    "futures",
    "scoring",
    "chains",
    "models",
    "markets",
    "audit",
    "surface",
    "frames",
    "data",
    "examples",
    "vix",
    "joint",
    "fitting",
    "operators",
    "storage",
    "sources",
    "report",
    "pipeline",
    "cli",
]

# The lab stands on the library.
LAB = [
    "differentiable",
    "nets",
    "metrics",
    "peers",
    "baselines",
    "stability",
    "training",
    "evaluation",
    "protocol",
    "reproduction",
    "cli",
]

# One-call conveniences of a surface: imported when called, or for the type checker only.
CONVENIENCES = {
    "arbiter.surface": {"storage", "frames", "audit", "report"},
    "arbiter.fitting.fitted_surface": {"fitting"},
}

# Inside a floor, from low to high. A module imports modules of the rows before its own. A folder
# inside a floor is one place of its row, and has no circles inside.
LAYERS = {
    "arbiter.files": [
        "formats limits safe_text whole_files",
        "folder_locks parquet_size",
        "result_folder",
    ],
    "arbiter.pricing": [
        "elementary",
        "normal",
        "black knots",
        "maturity price_derivatives slice_integrals",
        "calendar_rate transport",
        "mixture",
        "decoder",
        "vix_slices",
    ],
    "arbiter.chains": [
        "errors nyse option_table padded_rows",
        "contradictions parity parquet_files sessions symbols",
        "cleaning quote_time roots series_parity source",
        "chain reading tables",
        "exchange_layout long_layout tidy_layout yahoo_layout volatilities_layout futures_files",
        "assembly",
        "layouts",
    ],
    "arbiter.models": [
        "exact_prices fractional_kernel",
        "lewis matrix_product",
        "fourier_sums heston parameters riccati_steps",
        "double_heston expected_variance fourier_nodes fourier_pricing riccati",
        "characteristic_function",
        "heston_calibration vix_oracle",
        "lifted_heston",
    ],
    "arbiter.markets": [
        "frictions listing paths seeds",
        "listing_prices quoted_chain",
        "exchange_file vix_listing",
        "snapshots",
        "dataset_tables timelines",
        "universes",
        "dataset",
        "dataset_picture",
    ],
    "arbiter.audit": [
        "audited_surface grid law_quadrature",
        "durrleman price_envelope spread_values structural_proof",
        "inequalities jump_search price_tables",
        "price_range",
        "sampling",
        "vix_sampling",
        "certificate",
    ],
    "arbiter.vix": [
        "prior_features strip",
        "index_rule prior",
        "replication",
    ],
    "arbiter.joint": [
        "marginals",
        "instruments strike_mesh",
        "envelope witness",
        "payoff_floor",
        "program",
        "portfolio",
        "joint_audit",
    ],
    "arbiter.fitting": [
        "banded loss order_constraints prior_mean unknowns vix_quotes",
        "interior_point normal_equations options",
        "misfit roughness uncertainty",
        "fitted_surface objective",
        "fit_end guided_objective initial_point smoothing",
        "cross_validation prior_weight vix_objective",
        "joint_objective",
        "joint_fit",
        "direct_fit vix_fit",
        "refinement vix_comparison window_update",
    ],
    "arbiter.operators": [
        "checkpoint domain matrix_products quote_rows slope_head workers",
        "prior",
        "network",
        "domain_features operator_surface second_component vix_head heston_guide",
        "residuals",
        "pretrained",
    ],
    "arbiter.report": [
        "fit_summary number_format smile_curves surface_picture",
        "smile_panels vix_curves",
        "curves",
        "contact_sheet headline plot_style tables",
        "picture_style slice_figures vix_panels",
        "figures smile_pictures vix_pictures",
        "page pictures",
    ],
    "arbiter.cli": [
        "chain_folders chain_options console_log exit_codes safe_console",
        "audit_command joint_command simulate_command vix_command vix_options warm_command",
        "fit_command",
    ],
}
