"""Every operation as a plan: ``index`` (its life), ``write`` and ``read`` (documents), ``search``."""
