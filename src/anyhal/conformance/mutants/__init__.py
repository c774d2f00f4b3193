"""The proof of the suite: broken backends that it must refuse, correct ones that it must not.
SPDX-License-Identifier: Apache-2.0

`rows/` holds the broken backends as edits of complete ones, `building` compiles them, `judging`
asks the suite, `ordinary` is the test with a tolerance of 1 % that many of them survive, `proof`
puts it together, `flips` breaks kernels at random.
"""
