"""Fakes of every port, for the tests of this project and of its users."""
