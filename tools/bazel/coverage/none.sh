#!/bin/sh
# Bazel wants a coverage tool to exist before it analyses a cc_test.
exit 1
