"""Front ends: programs that reach devices only through the public `anyhal` names.
SPDX-License-Identifier: Apache-2.0
"""
