"""Known flaws in what is installed, by pip-audit: 0 none, 1 some, 3 no advisory source is at hand.

The tool itself ends with 0 and "no known vulnerabilities" where its source knows none of the packages, as behind a
mirror without advisories. That nobody was asked is another answer than that nobody knows of a flaw.

    audit_deps.py PIP-AUDIT SITE-PACKAGES
"""

from __future__ import annotations

import json
import subprocess
import sys

NONE, FLAWS, NO_SOURCE = 0, 1, 3  # exit codes
OURS = "gossamer"  # this repository, which no registry has


def main(tool: str, site: str) -> int:
    command = [tool, "--path", site, "--format", "json", "--progress-spinner", "off", "--timeout", "30"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        found = [each for each in json.loads(done.stdout)["dependencies"] if each["name"] != OURS]
    except (ValueError, KeyError, TypeError):
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        print(
            f"audit-deps: no advisory source is at hand, so nothing was audited ({why[:200]}).",
            file=sys.stderr,
        )
        return NO_SOURCE
    asked = [each for each in found if "skip_reason" not in each]
    if not asked:
        why = f"it knows none of {len(found)} packages"
        print(f"audit-deps: no advisory source is at hand, so nothing was audited ({why}).", file=sys.stderr)
        return NO_SOURCE
    flaws = [(each, flaw) for each in asked for flaw in each["vulns"]]
    for each, flaw in flaws:
        mended = ", ".join(flaw["fix_versions"]) or "no version yet"
        print(
            f"audit-deps: {each['name']}=={each['version']}: {flaw['id']}, mended in {mended}",
            file=sys.stderr,
        )
    for each in found:
        if "skip_reason" in each:
            print(f"audit-deps: not audited: {each['name']}", file=sys.stderr)
    print(f"audit-deps: {len(asked)} of {len(found)} packages audited, {len(flaws)} known flaws")
    return FLAWS if flaws else NONE


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
