"""``python -m dort_compare``: the ``dort-compare`` command of this Python."""

from dort_compare.cli import main

main()
