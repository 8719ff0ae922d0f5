"""The documented import path of a verified log. The code is in `log.reading`."""

from codegenie.eval.log.reading import VerifiedLog, expect_head, verify_log

__all__ = ["VerifiedLog", "expect_head", "verify_log"]
