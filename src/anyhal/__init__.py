"""Application programs over any accelerator. SPDX-License-Identifier: Apache-2.0"""
