"""An experiment's last day: what may no longer be done after it."""

from __future__ import annotations

from datetime import date

from engine import errors
from lab.config import LabConf


class Expired(errors.FrontierError):
    """The experiment's last day is past; the message says what can still be done."""


def require_unexpired(conf: LabConf, today: date) -> None:
    """Raise `Expired` after the last day: nothing is measured that nobody may decide any more."""
    e = conf.experiment
    if today > date.fromisoformat(e.expires_on):
        can = "" if e.extension_reason else f"frontier lab extend {e.name} --reason ... (once), "
        raise Expired(
            f"{e.name} expired on {e.expires_on}, {(today - date.fromisoformat(e.expires_on)).days} days ago; "
            f"{can}frontier lab decide {e.name}, or frontier lab delete {e.name}"
        )
