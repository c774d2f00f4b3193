"""GGUF front end: LLaMA-family language models from one file, run through the public API.
SPDX-License-Identifier: Apache-2.0
"""
