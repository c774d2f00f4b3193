"""What people read of a report: a matrix, a page, a table, and what build servers show.
SPDX-License-Identifier: Apache-2.0
"""
