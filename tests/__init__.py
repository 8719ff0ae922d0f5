"""The test suite; a package so that tests can import from `tests.adv.conftest`."""
