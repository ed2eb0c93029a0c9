"""A checkpoint whose description lies is refused by name, before anything is made of it."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save as serialise
from torch import nn
from typer.testing import CliRunner

import arbiter as ab
from arbiter.cli import app
from arbiter.data import example_chain_path as example_path
from arbiter.operators import checkpoint, pretrained
from arbiter.operators.checkpoint import CheckpointError
from arbiter.operators.law import network as shipped
from arbiter.operators.law.config import LawConfig
from arbiter.operators.pretrained import DEFAULT_WEIGHTS_NAME, Operator
from arbiter_lab.baselines import matched_size
from arbiter_lab.baselines.gru import Recurrent
from arbiter_lab.baselines.matched_size import match_design
from arbiter_lab.baselines.trained_baseline import Baseline
from arbiter_lab.differentiable.operators.checkpoint import to_arrays
from arbiter_lab.differentiable.operators.law.network import LawNetwork
from arbiter_lab.differentiable.operators.network.config import Config
from arbiter_lab.differentiable.operators.network.network import Network
from arbiter_lab.differentiable.operators.pretrained import make_operator
from arbiter_lab.evaluation.first_design import FirstDesign
from arbiter_lab.evaluation.methods import load_any_operator
from counts import count

CONFIG = LawConfig(heads=4, width=8, state=4, rank=1, context=8)
FIRST = Config(heads=4, width=8, state=4, rank=1, context=8)
LIMITS = {"expiries": [2.0, None], "spread": [0.001, 0.2]}

CONFIGS: list[tuple[dict[str, Any], str]] = [
    ({"width": 10**7}, "width = 10000000 must be a whole number from 1 to"),
    ({"heads": 10**9}, "heads = 1000000000 must be a whole number from 2 to"),
    ({"looks": 10**6}, "looks = 1000000 must be a whole number from 1 to"),
    ({"state": 10**4000}, "state = 1000000"),
    ({"heads": 4.5}, "heads = 4.5 must be a whole number"),
    ({"heads": "4"}, "heads = '4' must be a whole number"),
    ({"looks": True}, "looks = True must be a whole number"),
    ({"rank": None}, "rank = None must be a whole number"),
    ({"reach": "far"}, "reach = 'far' must be a list of numbers"),
    ({"reach": [math.nan, 2.0]}, "reach = [nan, 2.0] must be a list of numbers"),
    ({"reach": [3.0]}, "reach = [3.0] must be two numbers above 0, to 10"),
    ({"budget": "x"}, "budget = 'x' must be a positive number"),
    ({"budget": math.nan}, "budget = nan must be a positive number"),
    ({"unread_mass": 0.0}, "unread_mass = 0.0 must be a positive number"),
    ({"prior_places": [44.5, 3.7, 2.4]}, "must be a count and two numbers between 0, 5"),
    ({"prior_places": [44, 3.7, 6.0]}, "must be a count and two numbers between 0, 5"),
    ({"layers": 3}, "config: layers unknown; there are heads"),
]
FIRST_CONFIGS: list[tuple[dict[str, Any], str]] = [
    ({"width": 10**7}, "width = 10000000 must be a whole number from 1 to"),
    ({"gate": "no"}, "gate = 'no' must be true or false"),
    ({"kriging": 1}, "kriging = 1 must be true or false"),
    ({"spans": None}, "spans = None must be a list of numbers"),
    ({"spans": [math.nan]}, "spans = [nan] must be a list of numbers"),
    ({"spans": [0.1] * 17}, "must be up to 16 numbers"),
    ({"scan": ["resolvent"]}, "scan = ['resolvent']: give one of"),
    ({"decoder": "spline"}, "decoder = 'spline': give one of"),
    ({"layers": 3}, "config: layers unknown; there are heads"),
    ({"width": 4096, "context": 4096, "looks": 32}, "it was saved by another configuration"),
]
DOMAINS: list[tuple[object, str]] = [
    ([1, 2], "domain = [1, 2] must be an object"),
    ("all", "domain = 'all' must be an object"),
    ({"expiries": 3}, "domain: expiries = 3 must be the lowest and the highest value"),
    ({"expiries": ["a", "b"]}, "domain: expiries = ['a', 'b'] must be"),
    ({"expiries": [2.0]}, "domain: expiries = [2.0] must be"),
    ({"expiries": [math.nan, 3.0]}, "domain: expiries = [nan, 3.0] must be"),
    ({"expiries": [False, True]}, "domain: expiries = [False, True] must be"),
    ({"magic": [0, 1]}, "domain: magic unknown; there are shortest_level"),
]


def written(path: Path, network: nn.Module, **about: Any) -> Path:
    """Write a file with a valid checksum and any contents; our own writer refuses NaN."""
    info: dict[str, Any] = {name: {} for name in checkpoint.REQUIRED_PROVENANCE} | about
    tensors = {name: tensor.contiguous() for name, tensor in network.state_dict().items()}
    right = checkpoint.compute_checksum(to_arrays(tensors), json.dumps(info, sort_keys=True))
    said = {"format": checkpoint.FORMAT, "version": 1, "info": info, "checksum": right}
    path.write_bytes(
        serialise(tensors, {checkpoint.METADATA_KEY: json.dumps(said, sort_keys=True)})
    )
    return path


def hostile(path: Path, config: object = None, **about: Any) -> Path:
    """Write a small operator whose configuration is replaced by any values."""
    own = CONFIG.to_dict()
    given = {**own, **config} if isinstance(config, dict) else config
    return written(path, LawNetwork(CONFIG), config=given, **about)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The control: the same file, and nothing wrong with it."""
    return hostile(tmp_path_factory.mktemp("files") / "small.safetensors", {}, domain=LIMITS)


def evaluated(path: Path, out: Path) -> Any:
    """The command line, on one surface."""
    chosen = ["--method", "operator", "--bench", "heston", "--count", "1", "--out", str(out)]
    return CliRunner().invoke(app, ["evaluate", "--weights", str(path), *chosen])


def refused(path: Path, told: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        Operator.load(path)
    said = str(caught.value)
    assert said.startswith(f"{path}: its ")
    assert told in said
    assert said.endswith(("train it again", "save it again without a domain"))


def test_the_file_that_says_the_truth_is_loaded(small: Path, tmp_path: Path) -> None:
    operator = Operator.load(small)
    report = operator(ab.example_chain().quotes()).domain
    assert report is not None
    assert report.inside
    assert operator.card["domain"] == LIMITS
    assert evaluated(small, tmp_path).exit_code == 0


@pytest.mark.parametrize(("config", "told"), CONFIGS, ids=lambda value: str(value)[:30])
def test_a_configuration_that_is_none_is_refused(
    tmp_path: Path, config: dict[str, Any], told: str
) -> None:
    refused(hostile(tmp_path / "x.safetensors", config), told)


@pytest.mark.parametrize("config", [None, [1, 2], "abc", 7])
def test_what_is_no_configuration_at_all_is_refused(tmp_path: Path, config: object) -> None:
    refused(hostile(tmp_path / "x.safetensors", config), "must be an object of values by name")


@pytest.mark.parametrize(("domain", "told"), DOMAINS, ids=str)
def test_limits_that_are_none_are_refused(tmp_path: Path, domain: object, told: str) -> None:
    refused(hostile(tmp_path / "x.safetensors", {}, domain=domain), told)
    with pytest.raises(ValueError, match=r"^domain"):
        make_operator(LawNetwork(CONFIG), {"domain": domain})


def test_no_limits_are_no_alarms(tmp_path: Path) -> None:
    none: list[object] = [None, {}]
    for domain in none:
        path = hostile(tmp_path / "x.safetensors", {}, domain=domain)
        assert Operator.load(path)(ab.example_chain().quotes()).domain is None


@pytest.mark.parametrize(
    ("about", "told"),
    [
        ({"config": {"width": 10**7}}, "width = 10000000"),
        ({"config": {"looks": "no"}}, "looks = 'no'"),
        ({"config": {}, "domain": {"expiries": 3}}, "expiries = 3"),
    ],
    ids=str,
)
def test_the_command_line_says_it_in_one_sentence_and_exits_2(
    tmp_path: Path, about: dict[str, Any], told: str
) -> None:
    path = hostile(tmp_path / "x.safetensors", **about)
    result = evaluated(path, tmp_path / "out")
    assert result.exit_code == 2
    said = result.stderr.strip()
    assert said.startswith(f"Error: {path}: ")
    assert told in said
    assert "\n" not in said
    assert not (tmp_path / "out").exists()


class Noted:
    """Builds networks, and remembers on which device."""

    def __init__(self, make: Any) -> None:
        self.make, self.devices = make, list[str]()

    def __call__(self, *given: Any) -> nn.Module:
        made: nn.Module = self.make(*given)
        self.devices += {tensor.device.type for tensor in made.state_dict().values()}
        return made


@pytest.mark.parametrize("larger", [{"width": 4096, "context": 4096, "looks": 3}, {"heads": 5}])
def test_a_network_larger_than_its_file_is_never_made(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, larger: dict[str, int]
) -> None:
    """A configuration may describe more than a billion parameters."""
    path = hostile(tmp_path / "x.safetensors", larger)
    built, make = [], shipped.LawNetwork

    def note(*given: Any) -> Any:
        built.append(given)
        return make(*given)

    monkeypatch.setattr(pretrained, "LawNetwork", note)
    with pytest.raises(CheckpointError, match=r"it was saved by another configuration"):
        Operator.load(path)
    assert len(built) == 0
    Operator.load(small)
    assert len(built) == 1


@pytest.mark.parametrize(("config", "told"), FIRST_CONFIGS, ids=lambda value: str(value)[:30])
def test_a_lie_about_a_network_of_the_first_design_is_refused(
    tmp_path: Path, config: dict[str, Any], told: str
) -> None:
    path = written(tmp_path / "x", Network(FIRST), config={**FIRST.to_dict(), **config})
    with pytest.raises(CheckpointError) as caught:
        load_any_operator(path)
    assert str(caught.value).startswith(f"{path}")
    assert told in str(caught.value)


def test_a_network_of_the_first_design_is_the_labs_alone(tmp_path: Path) -> None:
    path = written(tmp_path / "x", Network(FIRST), config=FIRST.to_dict())
    assert isinstance(load_any_operator(path), FirstDesign)
    with pytest.raises(CheckpointError, match="a network of the first design"):
        Operator.load(path)


def test_a_baseline_is_read_with_the_same_distrust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    design = match_design("gru", FIRST)
    honest = design.to_dict()
    network = design.build()
    assert Baseline.load(written(tmp_path / "a", network, config=honest)).design == design
    for change, told in (
        ({"width": 10**7}, "width = 10000000"),
        ({"width": 4.5}, "width = 4.5"),
        ({"matched_to": [1]}, "must be an object of values by name"),
        ({"matched_to": {"heads": "many"}}, "heads = 'many' must be a whole number"),
        ({"model": ["gru"]}, "model = "),
    ):
        with pytest.raises(CheckpointError, match=told):
            Baseline.load(written(tmp_path / "b", network, config=honest | change))
    built = Noted(Recurrent)
    monkeypatch.setattr(matched_size, "Recurrent", built)
    with pytest.raises(CheckpointError, match="another configuration"):
        Baseline.load(written(tmp_path / "c", network, config=honest | {"width": 4096}))
    assert built.devices == ["meta"]


def test_nonsense_in_any_field_makes_an_operator_or_a_refusal(tmp_path: Path) -> None:
    nonsense: list[Any] = [None, True, -1, 0, 2**63, 1.5, math.inf, "", "a", [], [1], {}, {"a": 1}]
    names = [*CONFIG.to_dict()][: count(full=99, reduced=6)]
    path, loaded = tmp_path / "x.safetensors", 0
    for name in names:
        for value in [*nonsense, CONFIG.to_dict()[name]]:
            try:
                Operator.load(hostile(path, {name: value}))
            except CheckpointError:
                continue
            loaded += 1
    assert len(names) <= loaded < 0.3 * len(names) * len(nonsense)


def test_the_shipped_weights_are_those_of_their_file() -> None:
    path = example_path().parent / f"{DEFAULT_WEIGHTS_NAME}.safetensors"
    tensors, info = checkpoint.load(path)
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}{tuple(tensor.shape)}".encode() + tensor.tobytes())
    operator = Operator.load(path)
    assert operator.model == digest.hexdigest()[:12]
    assert operator.config == LawConfig.from_dict(info["config"])
    assert operator.card["domain"] == info["domain"]
    torch.manual_seed(0)
    assert make_operator(LawNetwork(operator.config), info).model != operator.model
