"""The ``dort-compare`` command."""


def main() -> None: ...
