"""Writes what the pages of ``docs/findings`` have from the catalogue, and leaves what people wrote below it.

``python -m scripts.finding_pages`` rewrites the head of every page, and the index. A code without a page gets one that
has its head alone, which the tests refuse: somebody has to write the rest.
"""

from __future__ import annotations

from pathlib import Path

from statecore.doctor.finding_catalog import CATALOG, FindingKind, Repair, Severity

PAGES = Path(__file__).resolve().parents[1] / "docs" / "findings"
INDEX = "README.md"
HEADINGS = ("How it comes about", "What Kafka Streams does with it", "How to see it by hand", "What to do")
"""The sections that each page has below its head."""

_FOUND_BY = {
    "": "`statecore doctor`",
    "spec": "`statecore doctor --spec stores.yaml`",
    "scan": "`statecore doctor --scan`; without it where a block is met by chance",
    "brokers": "`statecore doctor` with brokers to ask",
}


def head(kind: FindingKind) -> str:
    """What a page begins with: title, severity, meaning and remedy, as the command says them."""
    repairs = "; ".join(f"{repair.value}" for repair in kind.repairs) or "none: a person has to"
    return (
        f"# {kind.code}: {kind.title}\n\n"
        f"| severity, at worst | {kind.severity.value} (exit code {kind.severity.exit_code}) |\n"
        f"|---|---|\n"
        f"| found by | {_FOUND_BY[kind.needs]} |\n"
        f"| repair | {repairs} |\n\n"
        f"**It means:** {kind.means}\n\n"
        f"**Do:** {kind.remedy}\n\n"
        f"{_command(kind)}"
    )


def _command(kind: FindingKind) -> str:
    """How the repair is begun; empty where there is none. A rebuild needs a spec."""
    if not kind.repairs:
        return ""
    words = ["statecore repair --state-dir DIR"]
    words.append("--spec stores.yaml" if kind.needs or Repair.REBUILD in kind.repairs else "--application-id ID")
    words += ["--scan"] if kind.needs == "scan" else []
    words += ["--cleanup-max-age TIME"] if Repair.TOUCH in kind.repairs else []
    return f"`{' '.join(words)}` shows how it would be repaired, and changes nothing; `--apply` does it.\n\n"


def index() -> str:
    """The list of all codes, by severity."""
    lines = [
        "# Findings of `statecore doctor`\n",
        "A page for each code: what it means, and what to do. [doctor.md](../doctor.md) describes the command.\n",
    ]
    for severity in reversed(list(Severity)):
        kinds = [kind for kind in CATALOG.values() if kind.severity is severity]
        lines.append(f"\n## {severity.value.capitalize()} (exit code {severity.exit_code}), at worst\n")
        lines += [f"- [{kind.code}]({kind.code}.md): {kind.title}" for kind in kinds]
    return "\n".join(lines) + "\n"


def wanted() -> dict[Path, str]:
    """Every page as it is to be: its head from the catalogue, the rest as it is."""
    pages = {PAGES / INDEX: index()}
    for kind in CATALOG.values():
        path = PAGES / f"{kind.code}.md"
        written = path.read_text() if path.exists() else ""
        _, heading, rest = written.partition(f"## {HEADINGS[0]}")
        pages[path] = head(kind) + heading + rest
    return pages


def main() -> None:
    """Write the pages."""
    for path, text in wanted().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
