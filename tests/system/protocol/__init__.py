"""The real code through every order in which two copies can meet at the stores: a model would prove nothing about it."""
