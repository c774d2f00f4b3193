"""Facts → policy → decision, on plain data: opens no device, reads no clock and no environment.
SPDX-License-Identifier: Apache-2.0
"""
