"""Another Django project, which knows nothing of the shop, uses the wheel of this one."""
