"""Django's command line for the foreign project."""

import os
import sys

from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "with_redis")
execute_from_command_line(sys.argv)
