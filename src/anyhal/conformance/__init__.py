"""How results are judged: error bounds by formula, and comparison without blind spots.
SPDX-License-Identifier: Apache-2.0
"""
