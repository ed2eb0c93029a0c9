"""Write the model card of the shipped operator into its page, from the weights' own metadata.

Usage: python tools/operator_card.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from arbiter.operators.domain import TRAITS
from arbiter.operators.pretrained import Operator

PAGE = Path(__file__).resolve().parents[1] / "docs" / "operator.md"
BEGIN, END = "<!-- card -->\n", "<!-- end of card -->"


def markdown(card: dict[str, Any]) -> str:
    """The card as tables."""
    facts = {
        "model": f"`{card['model']}`",
        "parameters": f"{card['parameters']:,}",
        "certified Lipschitz constant": f"{card['lipschitz']:.4g}",
        "training data": card.get("data"),
        "hash of the training data": card.get("data_hash"),
        "seed, steps": f"{card.get('seed')}, {card.get('step', 'unknown')}",
        "ended": card.get("ended"),
        "code that trained, code that shipped": f"{card.get('revision')}, "
        f"{card['shipped']['revision']} on {card['shipped']['date']}",
        "note": card.get("note"),
        "limits": card.get("limits"),
    }
    config = ", ".join(f"{name} {_text(value)}" for name, value in card["config"].items())
    lines = ["| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in facts.items() if value]
    lines += [f"| configuration | {config} |", "", "| measured | |", "|---|---|"]
    lines += [f"| `{name}` | {_text(value)} |" for name, value in card["metrics"].items()]
    if card.get("listed"):
        lines += ["", "| listed chain | error within 2 s.d., bp | median miss, half-spreads |"]
        lines += ["|---|---:|---:|"]
        lines += [f"| `{name}` | {a:.1f} | {b:.2f} |" for name, (a, b) in card["listed"].items()]
    lines += ["", "| trait | from | to | meaning |", "|---|---:|---:|---|"]
    for name, (low, high) in card["domain"].items():
        meaning = TRAITS[name].meaning if name in TRAITS else ""
        lines.append(f"| `{name}` | {_text(low)} | {_text(high)} | {meaning} |")
    return "\n".join(lines) + "\n"


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def with_card(page: str, card: dict[str, Any]) -> str:
    """A page whose card is this one."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{markdown(card)}\n{END}{after}"


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_card(page, Operator.pretrained().card), encoding="utf-8")
    print(f"{PAGE}: card of {Operator.pretrained().model}")


if __name__ == "__main__":
    main()
